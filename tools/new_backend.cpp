// `mytorch new-backend`: writes a small project whose backend passes `mytorch check`. It copies the
// files of share/mytorch/new_backend and replaces the backend's name in them.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "conformance/catalog.h"
#include "mytorch/error.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char kPlaceholder[] = "newchip";

std::string check_name(const std::string& name) {
  bool fine = !name.empty() && std::islower(static_cast<unsigned char>(name[0])) != 0;
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    fine = fine && (std::islower(u) != 0 || std::isdigit(u) != 0 || c == '-' || c == '_');
  }
  if (fine && name != "cpu" && name != "cuda") return "";
  return "'" + name +
         "' cannot name a new device: use a lower-case letter, then lower-case letters, digits, - "
         "and _, but not cpu or cuda";
}

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw Error(ErrorCode::kIo, "[new-backend] cannot read " + path.string());
  return text.str();
}

int new_backend(const std::string& name, const std::string& given) {
  const fs::path templates = fs::path(conformance::share_folder()) / "new_backend";
  const fs::path folder = given.empty() ? name : given;
  std::error_code ignored;
  if (fs::exists(folder) && !fs::is_empty(folder, ignored)) {
    throw Error(ErrorCode::kIo, "[new-backend] " + folder.string() +
                                    " is not empty: choose another directory with --dir");
  }
  if (!fs::exists(templates)) {
    throw Error(ErrorCode::kIo, "[new-backend] " + templates.string() +
                                    " does not exist: set MYTORCH_SHARE to share/mytorch of an "
                                    "installation");
  }
  fs::create_directories(folder, ignored);
  for (const auto& entry : fs::directory_iterator(templates)) {
    std::string text = read_all(entry.path());
    for (size_t at = 0; (at = text.find(kPlaceholder, at)) != std::string::npos;
         at += name.size()) {
      text.replace(at, sizeof(kPlaceholder) - 1, name);
    }
    const fs::path path = folder / entry.path().filename();
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) throw Error(ErrorCode::kIo, "[new-backend] cannot write " + path.string());
    std::cout << path.string() << "\n";
  }
  std::cout << "\nBuild and test it:\n  cmake -S " << folder.string() << " -B " << folder.string()
            << "/build -DCMAKE_PREFIX_PATH="
            << templates.parent_path().parent_path().parent_path().string() << "\n  cmake --build "
            << folder.string() << "/build\n  ctest --test-dir " << folder.string()
            << "/build --output-on-failure\n";
  return 0;
}

}  // namespace

Run add_new_backend(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  auto folder = std::make_shared<std::string>();
  app.add_option("name", *name, "name of the backend and its device, such as newchip")
      ->required()
      ->check(check_name);
  app.add_option("--dir", *folder, "directory to write to (default: NAME)");
  return [name, folder] { return new_backend(*name, *folder); };
}

}  // namespace mytorch::tools
