// The disk cache of compiled kernels. Needs no GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/programs/compiler.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {
namespace {

namespace fs = std::filesystem;

const std::string kText = "extern \"C\" __global__ void kernel(const __grid_constant__ int p) {}\n";

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "mytorch_cache_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ::setenv("MYTORCH_CACHE", name.c_str(), 1);
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
    ::unsetenv("MYTORCH_CACHE");
  }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> found;
    if (!fs::exists(folder_ / "cuda")) return found;
    for (const auto& entry : fs::directory_iterator(folder_ / "cuda")) {
      found.push_back(entry.path());
    }
    return found;
  }
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  fs::path folder_;
};

TEST_F(Cache, ReturnsStoredEntriesWithoutCompiling) {
  const std::string code = compile_cached(kText, 90);
  ASSERT_EQ(entries().size(), 1u);
  const fs::path entry = entries()[0];
  // Reads what is stored: a valid entry that replaces another one is returned.
  compile_cached(kText + "// another\n", 90);
  ASSERT_EQ(entries().size(), 2u);
  const fs::path other = entries()[0] == entry ? entries()[1] : entries()[0];
  fs::copy_file(other, entry, fs::copy_options::overwrite_existing);
  EXPECT_EQ(compile_cached(kText, 90), compile_cached(kText + "// another\n", 90));
  EXPECT_EQ(compile(kText, 90), code);
}

TEST_F(Cache, HasAnEntryForEachTextAndDevice) {
  compile_cached(kText, 90);
  compile_cached(kText, 80);
  compile_cached(kText + "\n", 90);
  EXPECT_EQ(entries().size(), 3u);
}

TEST_F(Cache, CompilesDamagedEntriesAgain) {
  const std::string code = compile_cached(kText, 90);
  const fs::path entry = entries()[0];
  const std::string whole = read(entry);
  for (const std::string& damaged :
       {std::string(), whole.substr(0, 20), whole.substr(0, whole.size() - 1), whole + "x",
        whole.substr(0, whole.size() / 2) + "?" + whole.substr(whole.size() / 2 + 1)}) {
    std::ofstream(entry, std::ios::binary | std::ios::trunc) << damaged;
    EXPECT_EQ(compile_cached(kText, 90), code);
    EXPECT_EQ(read(entry), whole);
  }
}

TEST_F(Cache, AllowsConcurrentWriters) {
  const std::string code = compile(kText, 90);
  std::vector<std::thread> threads;
  std::vector<std::string> codes(4);
  for (std::string& mine : codes) {
    threads.emplace_back([&mine] { mine = compile_cached(kText, 90); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& mine : codes) EXPECT_EQ(mine, code);
  EXPECT_EQ(entries().size(), 1u);  // no temporary files remain
}

TEST_F(Cache, CompilesWithoutAWritableFolder) {
  ::setenv("MYTORCH_CACHE", "/proc/no/such/folder", 1);
  EXPECT_FALSE(compile_cached(kText, 90).empty());
}

TEST_F(Cache, ReportsTheLogOfNvrtc) {
  try {
    compile_cached("no such thing", 90);
    FAIL();
  } catch (const sdk::Error& error) {
    EXPECT_NE(std::string(error.what()).find("kernel.cu(1): error"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(entries().empty());
}

}  // namespace
}  // namespace mytorch::cuda
