#include "mytorch/nn/safetensors_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>

#include "absl/strings/match.h"
#include "core/types/errors.h"
#include "nlohmann/json.hpp"
#include "nn/common/host_tensor.h"
#include "nn/serialize/atomic_file.h"
#include "nn/serialize/safetensors_header.h"
#include "nn/serialize/safetensors_reader.h"

namespace mytorch::nn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool has_file(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

struct SafetensorsFiles::State {
  State(const std::string& given, const char* what) : what(what), path(given) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      if (absl::EndsWith(path, ".json")) {
        read_index(path);
      } else {
        read_file(path);
      }
    } else if (has_file(fs::path(path) / kFile)) {
      read_file(path + "/" + kFile);
    } else if (has_file(fs::path(path) / kIndex)) {
      read_index(path + "/" + kIndex);
    } else {
      const bool pickle = has_file(fs::path(path) / "pytorch_model.bin");
      fail(ErrorCode::kIo, "[", what, "] folder ", path, " has neither ", kFile, " nor ", kIndex,
           pickle ? ". Its pytorch_model.bin is a program of Python's pickle: convert it with "
                    "save_pretrained of transformers"
                  : "");
    }
  }

  void read_file(const std::string& file) {
    const SafetensorsReader& reader = open(file);
    for (const Entry& entry : reader.header().entries) places.emplace(entry.name, file);
  }

  void read_index(const std::string& file) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) {  // a pipe would have to be waited for
      fail(ErrorCode::kIo, "[", what, "] file ", file, " cannot be read: there is no regular file");
    }
    std::ifstream in(file, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (!in) fail(ErrorCode::kIo, "[", what, "] file ", file, " cannot be read");
    // A document that nests deeply would use as much stack.
    constexpr int kMaxDepth = 32;
    bool too_deep = false;
    const Json::parser_callback_t callback = [&](int depth, Json::parse_event_t, Json&) {
      too_deep = too_deep || depth > kMaxDepth;
      return depth <= kMaxDepth;
    };
    const Json index = Json::parse(text, callback, /*allow_exceptions=*/false);
    const auto map = index.find("weight_map");
    if (too_deep || map == index.end() || !map->is_object()) {
      fail(ErrorCode::kValue, "[", what, "] file ", file, " has no weight_map: it is not an index");
    }
    const fs::path folder = fs::path(file).parent_path();
    for (const auto& [name, value] : map->items()) {
      const std::string* place = value.get_ptr<const std::string*>();
      if (place == nullptr || place->empty() || *place == ".." ||
          place->find('/') != std::string::npos) {
        fail(ErrorCode::kValue, "[", what, "] file ", file, ": the file ",
             shown(value.dump(-1, ' ', true, Json::error_handler_t::replace)), " of tensor '",
             shown(name), "' is not in its folder");
      }
      places.emplace(name, (folder / *place).string());
    }
  }

  const SafetensorsReader& open(const std::string& file) const {
    const std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<SafetensorsReader>& reader = readers[file];
    if (reader == nullptr) reader = std::make_unique<SafetensorsReader>(file);
    return *reader;
  }

  std::pair<const SafetensorsReader&, const Entry&> find(const std::string& name) const {
    const auto place = places.find(name);
    if (place == places.end()) {
      fail(ErrorCode::kValue, "[", what, "] ", path, " has no tensor '", shown(name),
           "': names() lists what it has");
    }
    const SafetensorsReader& reader = open(place->second);
    const Entry* entry = reader.find(name);
    if (entry == nullptr) {
      fail(ErrorCode::kIo, "[", what, "] file ", place->second, " lacks tensor '", shown(name),
           "', which the index of ", path, " expects in it: the files are of different models");
    }
    return {reader, *entry};
  }

  const char* what;
  std::string path;
  std::map<std::string, std::string> places;  // the file of each tensor
  mutable std::mutex mutex;                   // of what follows
  mutable std::map<std::string, std::unique_ptr<SafetensorsReader>> readers;
};

SafetensorsFiles::SafetensorsFiles(const std::string& path, const char* what)
    : state_(new State(path, what)) {}
SafetensorsFiles::SafetensorsFiles(SafetensorsFiles&&) noexcept = default;
SafetensorsFiles& SafetensorsFiles::operator=(SafetensorsFiles&&) noexcept = default;
SafetensorsFiles::~SafetensorsFiles() = default;

const std::string& SafetensorsFiles::path() const { return state_->path; }

std::vector<std::string> SafetensorsFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : state_->places) names.push_back(name);
  return names;
}

bool SafetensorsFiles::contains(const std::string& name) const {
  return state_->places.count(name) != 0;
}

const SafetensorsFile::Entry& SafetensorsFiles::entry(const std::string& name) const {
  return state_->find(name).second;
}

Tensor SafetensorsFiles::load(const std::string& name, Device device) const {
  const auto [reader, entry] = state_->find(name);
  return reader.load(entry, device);
}

Tensor SafetensorsFiles::read(const std::string& name, int64_t first, int64_t count) const {
  const auto [reader, entry] = state_->find(name);
  const int64_t numel = (entry.end - entry.begin) / element_size(entry.dtype);
  if (first < 0 || count < 0 || first > numel - count) {
    fail(ErrorCode::kValue, "[", state_->what, "] ", state_->path, ": tensor '", shown(name),
         "' has ", numel, " elements, and not ", count, " from element ", first, " on");
  }
  Tensor elements = fresh_host_tensor({count}, entry.dtype);
  reader.read(entry, first, count, fresh_data(elements));
  return elements;
}

void save_safetensors_index(const std::string& path,
                            const std::map<std::string, std::string>& files, int64_t total_bytes) {
  const Json index = {{"metadata", {{"total_size", total_bytes}}},
                      {"weight_map", Json(Json::object_t(files.begin(), files.end()))}};
  const std::string text = index.dump(2, ' ', false, Json::error_handler_t::strict) + "\n";
  AtomicFile file("save_safetensors_index", path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace mytorch::nn
