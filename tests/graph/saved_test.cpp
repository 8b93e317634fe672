// The files in tests/graph/saved, which earlier versions have written: later ones read them, and
// compute what those did. Each program has a file of tensors beside it:
//   x, x.2           an input; that of run 2, if inputs differ
//   y.2              a result of run 2
//   x.after          an input that the program writes, after the last run
//   beside/0.weight  a tensor that takes the place of one in the program before the first run
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/operator.h"
#include "mytorch/program.h"
#include "tests/autograd/util.h"
#include "tests/graph/device.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch {
namespace {

using testing::read_file;
using testing::TempDirectory;
using testing::write_file;

constexpr int kRuns = 4;
constexpr uint64_t kSeed = 11;  // of the default generator before the first run

// An operator of this program, which must be registered before files that name it are read.
void add_operator() {
  [[maybe_unused]] static const bool once = [] {
    register_operator({.schema = "saved::scaled(Tensor x, float by=2) -> Tensor",
                       .doc = "x * by",
                       .gradient = "none",
                       .body = [](const std::vector<Value>& args) -> std::vector<Value> {
                         return {args[0].tensor() * std::get<Scalar>(args[1].variant())};
                       }});
    return true;
  }();
}

using Tensors = std::vector<Tensor>;

// Writes the program of a function and what it computes. `calls` are the arguments of calls before
// it is saved, `runs` those of the runs, or one for all.
template <class F>
void write_example(const std::string& name, F function, const std::vector<Tensors>& calls,
                   const std::vector<Tensors>& runs, const SaveOptions& names,
                   const CompileOptions& options = {},
                   const std::map<std::string, Tensor>& beside = {}) {
  const std::string path = std::string(SAVED_PROGRAMS) + "/" + name;
  if (std::filesystem::exists(path + ".mtg")) return;
  auto f = compile(function, options);
  for (const Tensors& arguments : calls) {
    Tensors given;
    for (const Tensor& each : arguments) given.push_back(each.clone());
    f(given);
  }
  f.save(path + ".mtg", names);
  nn::TensorMap data;
  {
    const NoGradGuard no_grad;
    for (const auto& [state, tensor] : beside) {
      data["beside/" + state] = tensor.clone();
      names.names.at(state).detach().copy_(tensor);
    }
  }
  Tensors given;
  manual_seed(kSeed);
  for (size_t run = 0; run < kRuns; ++run) {
    if (run < runs.size()) {
      given.clear();
      for (size_t i = 0; i < runs[run].size(); ++i) {
        given.push_back(runs[run][i].clone());
        data[names.inputs[i] + (runs.size() > 1 ? "." + std::to_string(run) : "")] =
            runs[run][i].clone();
      }
    }
    const Tensors results = f(given);
    for (size_t k = 0; k < results.size(); ++k) {
      data[names.outputs[k] + "." + std::to_string(run)] = results[k].detach().contiguous();
    }
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].equal(runs.back()[i])) data[names.inputs[i] + ".after"] = given[i].clone();
  }
  nn::save_safetensors(path + ".safetensors", data);
}

// A step of a convolution under AdamW, with views.
void write_training_1() {
  manual_seed(1);
  nn::Sequential net(nn::Conv2d(1, 2, 3), nn::ReLU(), nn::Flatten(), nn::Linear(18, 4));
  nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  const Tensor x = drawn_on_cpu({3, 1, 5, 5}, 1), y = tensor({0, 1, 2});
  const Tensor seen = zeros({4, 2}).t();
  const auto step = [&](const Tensors& in) {
    optimizer.zero_grad();
    const Tensor scores = net(in[0]);
    const Tensor loss = nn::functional::cross_entropy(scores, in[1]);
    loss.backward();
    optimizer.step();
    seen.select(0, 1).add_(scores.detach().sum(0));
    return Tensors{loss.detach(), scores.detach().argmax(1), seen.clone()};
  };
  write_example("training-1", step, {{x, y}}, {{x, y}},
                {.inputs = {"x", "y"},
                 .outputs = {"loss", "class", "seen"},
                 .names = net.state_dict(),
                 .metadata = {{"note", "an example"}}});
}

// A step that counts batches, draws numbers, and adds to the grads of the step before.
void write_training_2() {
  manual_seed(2);
  nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Dropout(0.25), nn::Linear(4, 2));
  nn::optim::SGD optimizer(net.parameters(), {.lr = 0.05, .momentum = 0.9, .nesterov = true});
  const Tensor x = drawn_on_cpu({5, 3}, 1), y = drawn_on_cpu({5, 2}, 2);
  const auto step = [&](const Tensors& in) {
    const Tensor loss = nn::functional::mse_loss(net(in[0]), in[1]);
    loss.backward();
    optimizer.step();
    return Tensors{loss.detach(), net.buffers()[2].clone()};
  };
  net(x).sum().backward();  // there are grads before the first step
  write_example("training-2", step, {{x, y}}, {{x, y}},
                {.inputs = {"x", "y"}, .outputs = {"loss", "batches"}, .names = net.state_dict()});
}

void write_writes() {
  const Tensor seen = drawn_on_cpu({4, 9}, 1).slice(1, 2, 8).detach();
  const Tensor x = drawn_on_cpu({4, 3}, 2), y = drawn_on_cpu({3}, 3);
  const auto f = [&](const Tensors& in) {
    in[0].select(0, 1).mul_(0.5);
    in[0].t().slice(0, 1).add_(in[1].slice(0, 1).unsqueeze(1), -1);
    seen.slice(1, 0, 6, 2).relu_();
    const Tensor sum = empty({3, 4}).t();
    add_out(sum, in[0], in[1]);
    seen.slice(1, 3).copy_(sum);
    const Tensor filled = full({4, 3}, 2.5);
    filled.masked_fill_(in[0] > 0, -1).index_fill_(1, tensor({2}), 7);
    return Tensors{sum, filled, seen.clone()};
  };
  write_example("writes-1", f, {{x, y}}, {{x, y}},
                {.inputs = {"x", "y"}, .outputs = {"sum", "filled", "seen"}});
}

void write_sizes() {
  const Tensor w = drawn_on_cpu({3, 2}, 1);
  const auto f = [&](const Tensors& in) {
    const NoGradGuard no_grad;
    const int64_t n = in[0].size(0), t = in[0].size(1);
    const Tensor rows = in[0].matmul(w).reshape({n * t, 2}) / static_cast<double>(n);
    return Tensors{rows, in[0].slice(1, 0, t - 1).sum(1), arange(t) * 2};
  };
  std::vector<Tensors> calls, runs;
  for (const auto& [n, t] : {std::pair(2, 3), std::pair(4, 8), std::pair(7, 5)}) {
    calls.push_back({drawn_on_cpu({n, t, 3}, 2)});
  }
  for (const auto& [n, t] : {std::pair(3, 4), std::pair(2, 3), std::pair(1, 2), std::pair(9, 6)}) {
    runs.push_back({drawn_on_cpu({n, t, 3}, 3)});
  }
  write_example("sizes-1", f, calls, runs, {.inputs = {"x"}, .outputs = {"rows", "sums", "even"}},
                {.dynamic_dims = {{0, 0, "n"}, {0, 1, "t"}}});
}

void write_random() {
  const Tensor x = drawn_on_cpu({4, 3}, 1);
  const auto f = [](const Tensors& in) {
    const NoGradGuard no_grad;
    return Tensors{dropout(in[0], 0.5, true), rand({3}), randn({2, 2}), randint(0, 1000, {4}),
                   bernoulli(sigmoid(in[0]))};
  };
  write_example("random-1", f, {{x}}, {{x}},
                {.inputs = {"x"}, .outputs = {"dropped", "uniform", "normal", "whole", "coins"}});
}

void write_custom() {
  add_operator();
  const Tensor x = drawn_on_cpu({4}, 1);
  const auto f = [](const Tensors& in) {
    return Tensors{call("saved::scaled", {in[0]})[0].tensor() + 1,
                   call("saved::scaled", {in[0], -0.5})[0].tensor()};
  };
  write_example("custom-1", f, {{x}}, {{x}}, {.inputs = {"x"}, .outputs = {"twice", "minus_half"}});
}

void write_weights() {
  manual_seed(3);
  nn::Sequential net(nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 2));
  const Tensor x = drawn_on_cpu({2, 3}, 1);
  const auto f = [&](const Tensors& in) {
    const NoGradGuard no_grad;
    return Tensors{net(in[0])};
  };
  // The weight of the first layer is beside the program, the others are those inside.
  write_example("weights-1", f, {{x}}, {{x}},
                {.inputs = {"x"}, .outputs = {"y"}, .names = net.state_dict()}, {},
                {{"0.weight", drawn_on_cpu({4, 3}, 2)}});
}

void write_bfloat16() {
  const Tensor x = drawn_on_cpu({3, 4}, 1).to(kBFloat16), w = drawn_on_cpu({4, 4}, 2).to(kBFloat16);
  const auto f = [&](const Tensors& in) {
    const NoGradGuard no_grad;
    const Tensor y = in[0].matmul(w);
    return Tensors{gelu(y) * 2 + 1, softmax(y.to(kFloat32), -1), y.to(kFloat16)};
  };
  write_example("bfloat16-1", f, {{x}}, {{x}},
                {.inputs = {"x"}, .outputs = {"brain", "full", "half"}});
}

// Operators that stand for several others.
void write_fused() {
  const Tensor x = drawn_on_cpu({4, 6}, 1), y = tensor({0, 2, 1, 2});
  const Tensor w = drawn_on_cpu({6, 6}, 2), scale = drawn_on_cpu({6}, 3),
               bias = drawn_on_cpu({6}, 4);
  const Tensor classes = drawn_on_cpu({3, 6}, 5);
  const auto f = [&](const Tensors& in) {
    const NoGradGuard no_grad;
    const auto [rms, sum] = add_rms_norm(in[0], w.slice(0, 0, 4), {6}, scale);
    const auto [norm, again] = add_layer_norm(in[0], sum, {6}, scale, bias);
    return Tensors{linear_gelu(norm, w, bias, "tanh"), swiglu(rms, again),
                   linear_cross_entropy(norm, classes, in[1]),
                   nn::functional::layer_norm(in[0], {6}, scale, bias)};
  };
  write_example("fused-1", f, {{x, y}}, {{x, y}},
                {.inputs = {"x", "y"}, .outputs = {"gelu", "swiglu", "loss", "norm"}});
}

// Tensors that the function makes of numbers, on no device that it names.
void write_constants() {
  const Tensor x = drawn_on_cpu({2, 3}, 1);
  const auto f = [](const Tensors& in) {
    return Tensors{in[0] + arange(3) * 2, in[0] * tensor({1., -2., 3.}),
                   zeros({2}, kInt64),    full({2, 3}, true, kBool).logical_xor(in[0] > 0),
                   eye(2).matmul(in[0]),  linspace(0, 1, 3) + ones_like(in[0])};
  };
  write_example("constants-1", f, {{x}}, {{x}},
                {.inputs = {"x"}, .outputs = {"a", "b", "c", "d", "e", "f"}});
}

// Writes the files that are not there yet: with --gtest_also_run_disabled_tests, when the format
// grows. Those of earlier versions stay as they are.
TEST(SavedPrograms, DISABLED_Write) {
  write_training_1();
  write_training_2();
  write_writes();
  write_sizes();
  write_random();
  write_custom();
  write_weights();
  write_bfloat16();
  write_fused();
  write_constants();
}

std::vector<std::filesystem::path> saved_programs() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SAVED_PROGRAMS)) {
    if (entry.path().extension() == ".mtg") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

nn::TensorMap data_of(std::filesystem::path program) {
  return nn::load_safetensors(program.replace_extension(".safetensors").string());
}

// Kernels of other machines round otherwise.
void expect_close(const Tensor& found, const Tensor& expected) {
  EXPECT_EQ(found.dtype(), expected.dtype());
  ASSERT_EQ(found.sizes(), expected.sizes());
  const bool coarse = found.dtype() == kBFloat16 || found.dtype() == kFloat16;
  EXPECT_TRUE(allclose(found.to(kFloat64), expected.to(kFloat64), coarse ? 2e-2 : 1e-3,
                       coarse ? 1e-2 : 1e-4))
      << found << " and " << expected;
}

TEST(SavedPrograms, FilesOfEarlierVersionsRun) {
  add_operator();
  const std::vector<std::filesystem::path> paths = saved_programs();
  for (const std::filesystem::path& path : paths) {
    for (const CompileMode mode : {CompileMode::kExact, CompileMode::kDefault}) {
      SCOPED_TRACE(path.string());
      Program program = load(path.string(), mode);
      const nn::TensorMap data = data_of(path);
      for (const auto& [name, tensor] : data) {
        const NoGradGuard no_grad;
        if (name.rfind("beside/", 0) == 0) program.state().at(name.substr(7)).copy_(tensor);
      }
      Tensors inputs;
      manual_seed(kSeed);
      for (int run = 0; run < kRuns; ++run) {
        for (size_t i = 0; i < program.inputs().size(); ++i) {
          const std::string name = program.inputs()[i].name;
          const auto own = data.find(name + "." + std::to_string(run));
          if (own == data.end() && run > 0) continue;  // as the run before has left it
          const Tensor input = own != data.end() ? own->second : data.at(name);
          if (i < inputs.size()) {
            inputs[i] = input.clone();
          } else {
            inputs.push_back(input.clone());
          }
        }
        const Tensors found = program.run(inputs);
        ASSERT_EQ(found.size(), program.outputs().size());
        for (size_t k = 0; k < found.size(); ++k) {
          const std::string name = program.outputs()[k].name + "." + std::to_string(run);
          SCOPED_TRACE(name);
          expect_close(found[k], data.at(name));
        }
      }
      for (size_t i = 0; i < inputs.size(); ++i) {
        const auto after = data.find(program.inputs()[i].name + ".after");
        if (after != data.end()) expect_close(inputs[i], after->second);
      }
    }
  }
  EXPECT_EQ(paths.size(), 10u);
}

// What a file of a version says is read again, and written again, as it was.
TEST(SavedPrograms, FilesAreWrittenAsTheyWereRead) {
  add_operator();
  const TempDirectory folder;
  for (const std::filesystem::path& path : saved_programs()) {
    SCOPED_TRACE(path.string());
    const Program program = load(path.string());
    const std::string again = folder.path() + "/again.mtg";
    program.save(again);
    const Program back = load(again);
    EXPECT_EQ(back.text(), program.text());
    EXPECT_EQ(back.metadata(), program.metadata());
    ASSERT_EQ(back.state().size(), program.state().size());
    for (const auto& [name, tensor] : program.state()) {
      EXPECT_TRUE(back.state().at(name).equal(tensor)) << name;
    }
  }
}

// ---- damaged files ----

// Reads and runs a program. Returns whether this ends in an error, which must be one that a file
// can cause.
bool ends_in_error(const std::string& path) {
  try {
    Program program = load(path, CompileMode::kExact);
    for (int run = 0; run < 2; ++run) {
      Tensors inputs;
      for (const Program::Port& port : program.inputs()) {
        int64_t numel = 1;
        for (const int64_t size : port.sizes) numel *= size;
        if (numel > 1 << 20) return false;  // as the file says
        inputs.push_back(zeros(port.sizes, TensorOptions(port.dtype)));
      }
      program.run(inputs);
    }
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    EXPECT_NE(std::string(error.what()), "");
    return true;
  }
  return false;
}

TEST(SavedPrograms, TruncatedFilesAreErrors) {
  add_operator();
  const TempDirectory folder;
  const std::string path = folder.path() + "/damaged.mtg";
  for (const std::filesystem::path& each : saved_programs()) {
    SCOPED_TRACE(each.string());
    const std::string whole = read_file(each.string());
    for (size_t size = 0; size < whole.size(); size += size < 16 ? 1 : 1 + whole.size() / 60) {
      write_file(path, whole.substr(0, size));
      EXPECT_EQ(error_of([&] { load(path); }).find(path) != std::string::npos, true) << size;
    }
    write_file(path, whole.substr(0, whole.size() - 1));
    EXPECT_TRUE(ends_in_error(path));
    write_file(path, whole + "x");
    EXPECT_TRUE(ends_in_error(path));
  }
}

TEST(SavedPrograms, FlippedBytesEndInErrorsOrResults) {
  add_operator();
  const TempDirectory folder;
  const std::string path = folder.path() + "/damaged.mtg";
  int errors = 0;
  for (const std::filesystem::path& each : saved_programs()) {
    SCOPED_TRACE(each.string());
    const std::string whole = read_file(each.string());
    const size_t step = 1 + whole.size() / 150;
    for (size_t at = 0; at < whole.size(); at += step) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at / step % 8)));
      write_file(path, bytes);
      errors += ends_in_error(path) ? 1 : 0;
    }
  }
  EXPECT_GT(errors, 300);
}

// A file with another header, whose length it states.
class OtherHeader {
 public:
  explicit OtherHeader(const std::string& whole) {
    uint64_t length = 0;
    std::memcpy(&length, whole.data(), sizeof(length));
    header_ = whole.substr(sizeof(length), length);
    body_ = whole.substr(sizeof(length) + length);
  }
  // Returns the file with the first `from` in the header replaced; "" if there is none.
  std::string replaced(const std::string& from, const std::string& to) const {
    const size_t at = header_.find(from);
    if (at == std::string::npos) return "";
    std::string header = header_;
    header.replace(at, from.size(), to);
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + body_;
  }

 private:
  std::string header_, body_;
};

TEST(SavedPrograms, CountsThatAreTooLargeAreErrors) {
  add_operator();
  const TempDirectory folder;
  const std::string path = folder.path() + "/damaged.mtg";
  const std::string huge = "9223372036854775807", large = "99999999";
  const std::pair<std::string, std::string> lies[] = {
      {"\"shape\":[", "\"shape\":[" + huge + ","},
      {"\"shape\":[", "\"shape\":[" + large + ","},
      {"\"data_offsets\":[", "\"data_offsets\":[" + huge + ","},
      {"\"data_offsets\":[0,", "\"data_offsets\":[" + large + ","},
      {"outside(0)", "outside(" + huge + ")"},
      {"outside(0)", "outside(" + large + ")"},
      {"(%0", "(%" + huge},
      {"float32[", "float32[" + huge + ", "},
      {" = ", " in %0 + " + huge + " = "},
      {" = ", " in %" + large + " = "},
      {"memory(", "memory(" + huge},
      {"return %", "return %" + large},
  };
  int damaged = 0;
  for (const std::filesystem::path& each : saved_programs()) {
    const std::string whole = read_file(each.string());
    std::string length = whole;
    for (const uint64_t bytes :
         {~uint64_t{0}, uint64_t{1} << 62, uint64_t{1} << 31, whole.size()}) {
      std::memcpy(length.data(), &bytes, sizeof(bytes));
      write_file(path, length);
      EXPECT_TRUE(ends_in_error(path)) << each << ", a header of " << bytes;
    }
    for (const auto& [from, to] : lies) {
      const std::string bytes = OtherHeader(whole).replaced(from, to);
      if (bytes.empty()) continue;
      write_file(path, bytes);
      EXPECT_TRUE(ends_in_error(path)) << each << ": " << to;
      ++damaged;
    }
  }
  EXPECT_GT(damaged, 60);
}

// Operators of a program are found by name, and compared by their schema.
TEST(SavedPrograms, OperatorsOfTheirOwnAreNamed) {
  add_operator();
  const TempDirectory folder;
  const std::string path = folder.path() + "/custom.mtg";
  const std::string whole = read_file(std::string(SAVED_PROGRAMS) + "/custom-1.mtg");
  std::string other = whole;
  for (size_t at; (at = other.find("saved::scaled")) != std::string::npos;) {
    other.replace(at, 13, "saved::sealed");
  }
  write_file(path, other);
  EXPECT_ERROR(load(path), "operator 'saved::sealed', which is not registered");
  // The hash of a schema that had other arguments.
  const std::string name = "saved::scaled ";
  const size_t at = whole.find(name, whole.find("\"operators\""));
  ASSERT_NE(at, std::string::npos);
  other = whole;
  char& digit = other[at + name.size()];
  digit = digit == '1' ? '2' : '1';
  write_file(path, other);
  EXPECT_ERROR(load(path), "saved::scaled");
}

}  // namespace
}  // namespace mytorch
