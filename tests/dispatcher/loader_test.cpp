// Loading of invalid and unusual backend libraries, and the search path of backends.
#include <elf.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "mytorch/backends.h"
#include "mytorch/call.h"
#include "mytorch/choice.h"
#include "mytorch/ops/bmm.h"
#include "mytorch/ops/heaviside.h"
#include "mytorch/ops/ones.h"
#include "tests/dispatcher/util.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch {
namespace {

using testing::expect_error;
using testing::read_file;
using testing::TempDirectory;
using testing::Values;
using testing::values;
using testing::write_file;

std::string odd(const std::string& kind) {
  return std::string(MYTORCH_ODD_BACKENDS) + "/" + kind + ".so";
}

class LoaderTest : public ::testing::Test {
 protected:
  std::string with(const std::string& bytes) const {
    write_file(directory_.file("backend.so"), bytes);
    return directory_.file("backend.so");
  }
  // Expects that the file is rejected with its name and the given text, and that nothing changes.
  void refused(ErrorCode code, const std::string& path, const std::string& part) const {
    const size_t before = backend_infos().size();
    expect_error(code, {"[backend]", path, part}, [&] { load_backend(path); });
    EXPECT_EQ(backend_infos().size(), before);
  }
  TempDirectory directory_;
};

TEST_F(LoaderTest, RejectsFilesThatAreNotLibraries) {
  refused(ErrorCode::kIo, directory_.file("missing.so"), "No such file");
  refused(ErrorCode::kIo, directory_.path(), "is not a file");
  refused(ErrorCode::kIo, with(""), "not a shared library");
  refused(ErrorCode::kIo, with("\x7f"), "not a shared library");
  refused(ErrorCode::kIo, with("#!/bin/sh\necho no\n" + std::string(5000, ' ')),
          "not a shared library");
  refused(ErrorCode::kIo, "/dev/null", "is not a file");
  ASSERT_EQ(mkfifo(directory_.file("pipe.so").c_str(), 0600), 0);
  refused(ErrorCode::kIo, directory_.file("pipe.so"), "is not a file");
}

TEST_F(LoaderTest, RejectsLibrariesForOtherMachines) {
  std::string bytes = read_file(odd("newer"));
  bytes[EI_CLASS] = ELFCLASS32;
  refused(ErrorCode::kIo, with(bytes), "64-bit");
  bytes = read_file(odd("newer"));
  bytes[offsetof(Elf64_Ehdr, e_machine)] = EM_68K;
  refused(ErrorCode::kIo, with(bytes), "another kind of machine");
}

TEST_F(LoaderTest, RejectsEveryTruncation) {
  const std::string whole = read_file(odd("newer"));
  ASSERT_GT(whole.size(), 4096u);
  // Bytes after the last segment are not read.
  const auto* elf = reinterpret_cast<const Elf64_Ehdr*>(whole.data());
  size_t needed = 0;
  for (int i = 0; i < elf->e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, whole.data() + elf->e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type == PT_LOAD) needed = std::max(needed, segment.p_offset + segment.p_filesz);
  }
  for (size_t length = 0; length < needed; length += length < 64 ? 1 : 7) {
    refused(ErrorCode::kIo, with(whole.substr(0, length)),
            length < sizeof(Elf64_Ehdr) ? "not a shared library" : "truncated");
  }
}

TEST_F(LoaderTest, RejectsLibrariesWithoutAnInitFunction) {
  refused(ErrorCode::kIo, odd("no_symbol"), "does not export mt_backend_init");
  refused(ErrorCode::kIo, odd("unresolved"), "symbol_that_nobody_has");
}

TEST_F(LoaderTest, RejectsUnusableBackends) {
  refused(ErrorCode::kUnsupported, odd("other_major"), "implements contract version 2");
  refused(ErrorCode::kUnsupported, odd("no_hardware"), "there is no such chip here");
}

TEST_F(LoaderTest, RejectsBackendsWithInvalidOperators) {
  refused(ErrorCode::kValue, odd("bad_operator"), "odd::bad");
  refused(ErrorCode::kValue, odd("bad_operator"),
          "odd::bad");  // rather than an error about a duplicate name
  EXPECT_THROW(call("odd::good", {tensor({1.0})}), Error);
  for (const BackendInfo& info : backend_infos()) EXPECT_NE(info.name, "bad-operator");
}

TEST_F(LoaderTest, AcceptsNewerBackends) {
  load_backend(odd("newer"));
  load_backend(odd("newer"));  // already loaded
  const Tensor x = tensor({1.0, 2});
  const Prefer newer("cpu", "newer");
  EXPECT_EQ(values(heaviside(x, x)), (Values{42, 42}));
  EXPECT_EQ(values(x + x), (Values{2, 4}));  // by another backend
  bool listed = false;
  for (const BackendInfo& info : backend_infos()) {
    listed |= info.name == "newer" && info.version == "99" && info.path == odd("newer");
  }
  EXPECT_TRUE(listed);
  std::filesystem::copy_file(odd("newer"), directory_.file("copy.so"));
  refused(ErrorCode::kValue, directory_.file("copy.so"), odd("newer"));
}

// ---- search path: in separate processes, which have not loaded any backend yet ----

class BackendPathDeathTest : public LoaderTest {
 protected:
  BackendPathDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

#define EXPECT_IN_NEW_PROCESS(statement, said)            \
  EXPECT_EXIT(                                            \
      {                                                   \
        statement;                                        \
        std::exit(::testing::Test::HasFailure() ? 1 : 0); \
      },                                                  \
      ::testing::ExitedWithCode(0), said)

std::string build_folder() {
  return std::filesystem::path(MYTORCH_ODD_BACKENDS).parent_path().parent_path().string();
}

void finds_files_and_folders() {
  const std::string list = "/nonexistent:" + odd("newer") + "::" + odd("no_hardware") + ":" +
                           odd("no_symbol") + ":" + build_folder() + "/lib/mytorch/backends";
  setenv("MYTORCH_BACKEND_PATH", list.c_str(), 1);
  EXPECT_EQ(values(tensor({1.0, 2}) + 1), (Values{2, 3}));
  std::vector<std::string> names;
  std::string failed;
  for (const BackendInfo& info : backend_infos()) {
    if (info.error.empty()) names.push_back(info.name);
    failed += info.error + "\n";
  }
  EXPECT_EQ(names.front(), "newer");
  EXPECT_NE(std::find(names.begin(), names.end(), "cpu-openmp"), names.end());
  for (const char* part : {"/nonexistent", "no_symbol.so", "no such chip"}) {
    EXPECT_NE(failed.find(part), std::string::npos) << part << " in:\n" << failed;
  }
}

TEST_F(BackendPathDeathTest, FindsFilesAndFolders) {
  // Reported once on stderr; a backend without hardware is not reported.
  EXPECT_IN_NEW_PROCESS(
      finds_files_and_folders(),
      "^mytorch: warning: \\[backend\\] cannot open /nonexistent: No such file or "
      "directory\nmytorch: warning: \\[backend\\] [^\n]*no_symbol.so is not a backend"
      "[^\n]*\n$");
}

void says_that_there_is_none(const char* path, const char* part) {
  setenv("MYTORCH_BACKEND_PATH", path, 1);
  expect_error(ErrorCode::kUnsupported,
               {"no kernel", "none is loaded", "MYTORCH_BACKEND_PATH", part}, [] {
                 tensor({1.0, 2}) + 1;
               });
  expect_error(ErrorCode::kUnsupported, {"none is loaded"}, [] { tensor({1.0, 2}) + 1; });
  // Operators without kernels still work.
  EXPECT_EQ(tensor({1.0, 2}).view({2, 1}).numel(), 2);
}

TEST_F(BackendPathDeathTest, ReportsThatNoneIsLoaded) {
  EXPECT_IN_NEW_PROCESS(says_that_there_is_none("", ""), "^$");
  const std::string damaged = with("nothing of use");
  EXPECT_IN_NEW_PROCESS(says_that_there_is_none(damaged.c_str(), "is not a shared library"),
                        "backend.so is not a shared library");
  EXPECT_IN_NEW_PROCESS(says_that_there_is_none("/nonexistent", "No such file"), "/nonexistent");
}

void prefers_by_name() {
  setenv("MYTORCH_PREFER", "nobody,reference", 1);
  const Tensor x = tensor({0.5});
  EXPECT_EQ(values(x + x), Values{1});
  // The reference runs because it is pinned.
  expect_error(ErrorCode::kShape, {"bmm"}, [&] { bmm(x, x); });
  const auto list = kernels(*find_op("bmm"), kCpuSlot);
  EXPECT_GE(list.size(), 2u);
}

TEST_F(BackendPathDeathTest, PrefersByName) {
  EXPECT_IN_NEW_PROCESS(
      prefers_by_name(),
      "^mytorch: warning: \\[backend\\] MYTORCH_PREFER names 'nobody', which is not "
      "loaded \\(loaded: [^\n]*cpu-openmp, [^\n]*reference[^\n]*\\)\n$");
}

void refuses_an_instruction_set(const char* name, const char* without, const char* part) {
  setenv("MYTORCH_CPU", name, 1);
  setenv("MYTORCH_TEST_WITHOUT", without, 1);
  setenv("MYTORCH_BACKEND_PATH", "", 1);
  expect_error(ErrorCode::kInternal, {"MYTORCH_CPU", name, part}, [] {
    load_backend(build_folder() + "/lib/mytorch/backends/mytorch_cpu_openmp.so");
  });
}

TEST_F(BackendPathDeathTest, AnInstructionSetThatIsMissingIsAnError) {
  EXPECT_IN_NEW_PROCESS(refuses_an_instruction_set("avx9", "", "expected avx2"), "^$");
  EXPECT_IN_NEW_PROCESS(refuses_an_instruction_set("avx3", "gpu,avx3", "lacks the instruction set"),
                        "^$");
}

void prefers_for_one_op() {
  setenv("MYTORCH_PREFER", "bmm=reference,no_such=cpu-openmp", 1);
  const Tensor x = tensor({0.5});
  EXPECT_EQ(values(x + x), Values{1});
  const auto by = [](const char* op, const std::vector<Value>& args) {
    const auto all = explain(op, args);
    for (const ExplainedKernel& kernel : all.at(0).kernels) {
      if (kernel.chosen) return all[0].by + " " + kernel.backend;
    }
    return std::string("nobody");
  };
  const Tensor m = ones({2, 3, 3});
  EXPECT_EQ(by("bmm", {m, m}), "pin reference");
  EXPECT_EQ(by("add", {m, m}).substr(0, 12), "priority cpu");
}

TEST_F(BackendPathDeathTest, PrefersForOneOp) {
  EXPECT_IN_NEW_PROCESS(
      prefers_for_one_op(),
      "^mytorch: warning: \\[backend\\] MYTORCH_PREFER names 'no_such', which is not an "
      "operator\n$");
}

}  // namespace
}  // namespace mytorch
