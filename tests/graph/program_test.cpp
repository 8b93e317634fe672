#include "mytorch/program.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "graph/capture/capture.h"
#include "graph/formats/parse.h"
#include "graph/formats/saved.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/mytorch_c.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/operator.h"
#include "nn/serialize/npy.h"
#include "tests/autograd/util.h"
#include "tests/core/same_bits.h"
#include "tests/graph/device.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch {
namespace {

namespace F = nn::functional;

using testing::read_file;
using testing::TempDirectory;
using testing::write_file;

template <class F>
std::string message_of(const F& f, ErrorCode code) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}
#define EXPECT_MESSAGE(code, part, call)                         \
  do {                                                           \
    const std::string message = message_of([&] { call; }, code); \
    EXPECT_NE(message.find(part), std::string::npos) << message; \
  } while (false)

// Replaces text by other text of the same length in a file.
void patch(const std::string& path, const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  std::string bytes = read_file(path);
  ASSERT_NE(bytes.find(from), std::string::npos);
  for (size_t at; (at = bytes.find(from)) != std::string::npos;) bytes.replace(at, from.size(), to);
  write_file(path, bytes);
}

class ProgramFile : public ::testing::Test {
 protected:
  const TempDirectory folder_;
  const std::string path_ = folder_.path() + "/model.mtg";
};

TEST_F(ProgramFile, RunsWithoutItsSource) {
  Tensor expected;
  const Tensor x = drawn_on_cpu({5, 6}, 1);
  {
    nn::Sequential net(nn::Linear(6, 8), nn::GELU(), nn::Linear(8, 3));
    auto f = compile([&](const Tensor& input) {
      const NoGradGuard no_grad;
      return softmax(net(input), -1);
    });
    EXPECT_MESSAGE(ErrorCode::kValue, "nothing is recorded yet", f.save(path_));
    expected = f(x);
    f.save(path_, {.inputs = {"x"},
                   .outputs = {"y"},
                   .names = net.state_dict(),
                   .metadata = {{"note", "small"}}});
  }
  Program program = load(path_, CompileMode::kExact);
  ASSERT_EQ(program.inputs().size(), 1u);
  EXPECT_EQ(program.inputs()[0].name, "x");
  EXPECT_EQ(program.inputs()[0].sizes, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(program.outputs()[0].name, "y");
  EXPECT_EQ(program.metadata().at("note"), "small");
  EXPECT_EQ(program.state().count("0.weight"), 1u);
  for (int i = 0; i < 4; ++i) expect_same(program(x), expected);
  // Any strides, any place in memory.
  expect_same(program(x.t().contiguous().t()), expected);
  expect_same(program(cat({ones({1}), x.flatten()}).slice(0, 1).view({5, 6})), expected);
  // The weights are those of safetensors.
  EXPECT_TRUE(nn::load_safetensors(path_).contains("0.weight"));
  const NoGradGuard no_grad;
  program.state().at("2.bias").fill_(INFINITY);
  EXPECT_TRUE(isnan(program(x)).all().item<bool>());
}

TEST_F(ProgramFile, ATrainingStepContinuesFromItsState) {
  nn::Sequential net(nn::Linear(6, 8), nn::Dropout(0.5), nn::ReLU(), nn::Linear(8, 4));
  nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  const Tensor x = drawn_on_cpu({5, 6}, 1), y = tensor({0, 1, 2, 3, 0});
  auto step = compile([&](const Tensor& input, const Tensor& target) {
    optimizer.zero_grad();
    const Tensor loss = F::cross_entropy(net(input), target);
    loss.backward();
    optimizer.step();
    return loss.detach();
  });
  for (int i = 0; i < 3; ++i) step(x, y);
  step.save(path_);
  manual_seed(5);
  std::vector<Tensor> expected;
  for (int i = 0; i < 8; ++i) expected.push_back(step(x, y));
  manual_seed(5);
  Program program = load(path_, CompileMode::kExact);
  for (int i = 0; i < 5; ++i) expect_same(program(x, y), expected[i]);
  program.save(path_);
  Program again = load(path_, CompileMode::kExact);
  for (int i = 5; i < 8; ++i) expect_same(again(x, y), expected[i]);
  EXPECT_FALSE(expected[3].equal(expected[7]));
}

TEST_F(ProgramFile, GradsThatAccumulateAreState) {
  nn::Linear net(3, 2);
  const Tensor x = drawn_on_cpu({4, 3}, 1);
  auto f = compile([&](const Tensor& input) { net(input).sum().backward(); });
  net(x).sum().backward();
  f(x);
  f.save(path_, {.names = net.state_dict()});
  Program program = load(path_, CompileMode::kExact);
  for (int i = 0; i < 4; ++i) program.run({x});
  for (int i = 0; i < 4; ++i) f(x);
  expect_same(program.state().at("weight").grad(), net.weight.grad());
}

TEST_F(ProgramFile, WritesToInputsReachThem) {
  auto f = compile([](const Tensor& x, const Tensor& y) {
    x.add_(y);
    return x * 2;
  });
  f(zeros({3}), ones({3}));
  f.save(path_);
  Program program = load(path_, CompileMode::kExact);
  for (int i = 0; i < 4; ++i) {
    const Tensor plain = full({3}, i, kFloat32), strided = full({3, 2}, i, kFloat32).select(1, 1);
    for (const Tensor& x : {plain, strided}) {
      expect_same(program(x, ones({3})), full({3}, 2 * i + 2, kFloat32));
      EXPECT_EQ(x[2].item<float>(), i + 1);
    }
  }
  const Tensor x = ones({3});
  EXPECT_MESSAGE(ErrorCode::kValue, "input 'input1' shares memory with another input",
                 program(x, x));
  EXPECT_EQ(x.sum().item<float>(), 3);
}

TEST_F(ProgramFile, InputsThatSharedMemoryMustShareIt) {
  const Tensor x = drawn_on_cpu({6}, 1);
  auto f = compile([](const Tensor& a, const Tensor& b) {
    a.mul_(2);
    return a + b;
  });
  const Tensor base = x.clone();
  const Tensor expected = f(base.slice(0, 0, 4), base.slice(0, 2, 6));
  f.save(path_);
  Program program = load(path_, CompileMode::kExact);
  for (int i = 0; i < 4; ++i) {
    const Tensor again = cat({zeros({16}), x}).slice(0, 16);
    expect_same(program(again.slice(0, 0, 4), again.slice(0, 2, 6)), expected);
  }
  EXPECT_MESSAGE(ErrorCode::kValue, "shared memory when the program was recorded",
                 program(x.slice(0, 0, 4), x.slice(0, 2, 6).clone()));
  EXPECT_MESSAGE(ErrorCode::kValue, "shared memory when the program was recorded",
                 program(x.slice(0, 0, 4), x.slice(0, 1, 5)));
}

TEST_F(ProgramFile, TensorsFromOutsideKeepTheirGeometry) {
  // detach() gives tensors that are views of none, and lie within memory as before.
  const Tensor base = drawn_on_cpu({4, 9}, 1).slice(1, 2, 8).detach(),
               filters = channels_last(drawn_on_cpu({4, 3, 2, 2}, 2));
  const Tensor mask = tensor({1, 0, 1, 1}, kBool).view({2, 2}).t().detach();
  const Tensor row = drawn_on_cpu({1}, 3).expand({6}).detach();
  auto f = compile([&](const Tensor& x) {
    base.select(0, 1).add_(1);
    const Tensor y = conv2d(x, filters);
    return std::tuple(base.slice(1, 2, 4).t() + where(mask, 1.0, 2.0).sum(), y, row + base);
  });
  const Tensor x = drawn_on_cpu({1, 3, 5, 5}, 4);
  f(x);
  f.save(path_);
  Program program = load(path_, CompileMode::kExact);
  for (int i = 0; i < 4; ++i) {
    const auto [a, b, c] = f(x);
    const std::vector<Tensor> found = program.run({x});
    expect_same(found[0], a);
    expect_same(found[1], b);
    EXPECT_EQ(found[1].strides().vec(), b.strides().vec());
    expect_same(found[2], c);
  }
}

TEST_F(ProgramFile, MemoryMayBeFilledThroughViews) {
  auto f = compile([](const Tensor& x) {
    const Tensor made = empty({2, 3});
    made.select(0, 0).copy_(x);
    made.select(0, 1).fill_(5);
    return made;
  });
  const Tensor x = drawn_on_cpu({3}, 1), expected = stack({x, full({3}, 5, kFloat32)});
  for (int i = 0; i < 4; ++i) expect_same(f(x), expected);
  EXPECT_EQ(f.stats().recorded, 1);
  f.save(path_);
  Program program = load(path_, CompileMode::kExact);
  for (int i = 0; i < 4; ++i) expect_same(program(x), expected);
}

TEST_F(ProgramFile, WrongInputsAreErrors) {
  auto f = compile([](const Tensor& x) { return x + 1; });
  f(zeros({2, 3}));
  f.save(path_, {.inputs = {"x"}});
  Program program = load(path_, CompileMode::kExact);
  EXPECT_MESSAGE(ErrorCode::kValue, "takes 1 inputs (x), and 0 are given", program.run({}));
  EXPECT_MESSAGE(ErrorCode::kType, "input 'x' is float64", program(zeros({2, 3}, kFloat64)));
  EXPECT_MESSAGE(ErrorCode::kShape, "input 'x' has shape (3, 2)", program(zeros({3, 2})));
  EXPECT_MESSAGE(ErrorCode::kValue, "input 'x' is undefined", program(Tensor()));
  EXPECT_MESSAGE(ErrorCode::kValue, "1 inputs, and 2 names", f.save(path_, {.inputs = {"a", "b"}}));
  EXPECT_MESSAGE(ErrorCode::kUnsupported, "a compiled function cannot record",
                 compile([&](const Tensor& x) { return program(x); })(zeros({2, 3})));
}

TEST_F(ProgramFile, WhatAFileCannotHoldIsNamed) {
  Generator generator(3);
  auto draws = compile([&](const Tensor& x) { return x + rand({2}, kFloat32, {}, generator); });
  draws(zeros({2}));
  EXPECT_MESSAGE(ErrorCode::kUnsupported, "draws from a generator of its own", draws.save(path_));
  const Tensor leaf = ones({2}).requires_grad_();
  auto sets = compile([](const Tensor& x) { (x * 2).sum().backward(); });
  sets(leaf);
  EXPECT_MESSAGE(ErrorCode::kUnsupported, "the grad of argument 0", sets.save(path_));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ProgramFile, MissingOperatorsAndNewerVersionsAreNamed) {
  register_operator({.schema = "demo::twice(Tensor x) -> Tensor",
                     .doc = "2 x",
                     .gradient = "none",
                     .body = [](const std::vector<Value>& args) -> std::vector<Value> {
                       return {args[0].tensor() * 2};
                     }});
  auto f = compile([](const Tensor& x) { return call("demo::twice", {x})[0].tensor() + 1; });
  f(ones({2}));
  f.save(path_);
  const std::string whole = read_file(path_);
  Program program = load(path_, CompileMode::kExact);
  for (int i = 0; i < 3; ++i) expect_same(program(ones({2})), full({2}, 3, kFloat32));
  patch(path_, "demo::twice", "demo::three");
  EXPECT_MESSAGE(ErrorCode::kIo, "operator 'demo::three', which is not registered",
                 load(path_, CompileMode::kExact));
  write_file(path_, whole);
  patch(path_, "add.Tensor", "adx.Tensor");
  EXPECT_MESSAGE(ErrorCode::kIo, "'adx.Tensor', which this version of mytorch does not have",
                 load(path_, CompileMode::kExact));
  write_file(path_, whole);
  patch(path_, "mytorch program 1", "mytorch program 3");
  EXPECT_MESSAGE(ErrorCode::kIo, "use a newer version of mytorch",
                 load(path_, CompileMode::kExact));
  nn::save_safetensors(path_, {{"x", ones({2})}});
  EXPECT_MESSAGE(ErrorCode::kIo, "it is no program", load(path_, CompileMode::kExact));
  EXPECT_MESSAGE(ErrorCode::kIo, "no-such-file", load(folder_.path() + "/no-such-file"));
}

// A file may state other results than the operators give.
TEST_F(ProgramFile, OperatorsThatGiveOtherResultsAreErrors) {
  auto f = compile([](const Tensor& x) { return x.t() + 1; });
  f(zeros({2, 3}));
  f.save(path_);
  const std::string whole = read_file(path_);
  const std::pair<const char*, const char*> lies[] = {
      {"float32[3, 2; 1, 3] = add", "float32[3, 9; 1, 3] = add"},
      {"float32[3, 2; 1, 3] = add", "float32[3, 2; 1, 2] = add"},
      {"float32[3, 2; 1, 3] = add", "float16[3, 2; 1, 3] = add"},
      {"in %0 = transpose", "      = transpose"},
  };
  for (const auto& [from, to] : lies) {
    write_file(path_, whole);
    patch(path_, from, to);
    Program program = load(path_, CompileMode::kExact);
    EXPECT_MESSAGE(ErrorCode::kValue, "[graph] node ", program(zeros({2, 3})));
  }
}

// Graphs with other numbers, values, types and operators in the places of theirs are refused, or
// run to results or errors.
TEST_F(ProgramFile, DamagedGraphsEndInErrors) {
  const Tensor table = drawn_on_cpu({4, 3}, 1), mask = ones({3}, kBool), seen = zeros({3, 2}).t();
  auto f = compile([&](const Tensor& x, const Tensor& index) {
    x.select(0, 1).mul_(2);
    const std::vector<Tensor> parts = split(x.transpose(0, 1), 1, 1);
    seen.select(0, 1).add_(parts[0].flatten());
    return std::tuple(where(mask, table.index_select(0, index) + 1, 0.5), parts[1] * parts[0],
                      softmax(x, 1).to(kFloat64).view({-1}), dropout(seen, 0.5, true));
  });
  f(ones({2, 3}), zeros({2}, kInt64));
  f.save(path_);
  const Program sound = load(path_, CompileMode::kExact);
  const std::string whole = sound.text();
  std::vector<std::pair<size_t, size_t>> tokens;  // begin and size
  for (size_t at = 0; at < whole.size();) {
    size_t end = at;
    const auto is_token = [&](char c) { return isalnum(c) != 0 || strchr("%_.", c) != nullptr; };
    while (end < whole.size() && is_token(whole[end])) ++end;
    if (end > at) tokens.emplace_back(at, end - at);
    at = end + 1;
  }
  std::mt19937_64 random(11);
  int read = 0, ran = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = whole;
    for (uint64_t n = 1 + random() % 2; n > 0; --n) {
      const auto [at, size] = tokens[random() % tokens.size()];
      const auto [other, other_size] = tokens[random() % tokens.size()];
      static const char* const kNumbers[] = {"0", "1", "2", "3", "4", "5", "6", "7", "9", "100"};
      const bool is_number = isdigit(whole[at]) != 0;
      text.replace(std::min(at, text.size() - 1), size,
                   is_number && random() % 3 != 0 ? kNumbers[random() % 10]
                                                  : whole.substr(other, other_size));
    }
    graph::SavedProgram saved;
    try {
      saved.recorded.graph = graph::parse_text(text);
      for (const auto& [name, tensor] : sound.state()) {
        saved.state.push_back(name);
        saved.recorded.outside.push_back(tensor);
      }
      saved.inputs.resize(saved.recorded.graph.arguments.size());
      saved.outputs.resize(saved.recorded.graph.results.size());
      check_saved(saved);
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::kInternal) << error.what() << "\n" << text;
      continue;
    }
    ++read;
    try {
      Program program(std::move(saved));
      for (int run = 0; run < 3; ++run) {
        std::vector<Tensor> inputs;
        for (const Program::Port& port : program.inputs()) {
          inputs.push_back(zeros(port.sizes, TensorOptions().dtype(port.dtype)));
        }
        program.run(inputs);
      }
      ++ran;
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::kInternal) << error.what() << "\n" << text;
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(ran, 100);
}

TEST_F(ProgramFile, TheCInterfaceRunsPrograms) {
  auto f =
      compile([](const Tensor& x, const Tensor& n) { return std::tuple(x * 2, n.sum(), x.t()); });
  f(zeros({2, 3}), zeros({4}, kInt64));
  f.save(path_, {.inputs = {"x", "n"}});
  EXPECT_EQ(mytorch_load("no-such-file"), nullptr);
  EXPECT_NE(std::string(mytorch_last_error()).find("no-such-file"), std::string::npos);
  mytorch_program* program = mytorch_load(path_.c_str());
  ASSERT_NE(program, nullptr) << mytorch_last_error();
  EXPECT_EQ(mytorch_num_inputs(program), 2);
  EXPECT_EQ(mytorch_num_outputs(program), 3);
  EXPECT_STREQ(mytorch_input_name(program, 1), "n");
  EXPECT_STREQ(mytorch_output_name(program, 0), "output0");
  EXPECT_EQ(mytorch_input_name(program, 2), nullptr);
  EXPECT_STREQ(mytorch_last_error(), "[c] the program has 2 inputs, and no number 2");
  mytorch_tensor info;
  ASSERT_EQ(mytorch_input_info(program, 1, &info), 0);
  EXPECT_EQ(info.ndim, 1);
  EXPECT_EQ(info.shape[0], 4);
  EXPECT_EQ(info.dtype.code, 0);
  EXPECT_EQ(info.dtype.bits, 64);
  float x[] = {0, 1, 2, 3, 4, 5};  // column by column
  int64_t n[] = {-1, 1, 2, 3, 4};
  float doubled[6];
  int64_t x_shape[] = {2, 3}, x_strides[] = {1, 2}, n_shape[] = {4};
  for (int i = 0; i < 4; ++i) {
    const mytorch_tensor inputs[] = {{x, {1, 0}, 2, {2, 32, 1}, x_shape, x_strides, 0},
                                     {n, {1, 0}, 1, {0, 64, 1}, n_shape, nullptr, 8}};
    mytorch_tensor outputs[3] = {{doubled, {1, 0}, 2, {2, 32, 1}, x_shape, nullptr, 0}, {}, {}};
    ASSERT_EQ(mytorch_run(program, inputs, outputs), 0) << mytorch_last_error();
    EXPECT_EQ(doubled[1], 4);  // row 0, column 1
    EXPECT_EQ(*static_cast<int64_t*>(outputs[1].data), 10);
    EXPECT_EQ(outputs[1].ndim, 0);
    const auto* row = static_cast<const float*>(outputs[2].data);
    EXPECT_EQ(row[1 * outputs[2].strides[0]], 2);
  }
  mytorch_tensor wrong[] = {{x, {1, 0}, 2, {2, 32, 1}, x_shape, x_strides, 0},
                            {nullptr, {1, 0}, 1, {0, 64, 1}, n_shape, nullptr, 0}};
  mytorch_tensor outputs[3] = {};
  EXPECT_NE(mytorch_run(program, wrong, outputs), 0);
  EXPECT_STREQ(mytorch_last_error(), "[c] 'n' has no data");
  wrong[1] = {n, {1, 0}, 1, {2, 64, 1}, n_shape, nullptr, 0};
  EXPECT_NE(mytorch_run(program, wrong, outputs), 0);
  EXPECT_NE(std::string(mytorch_last_error()).find("input 'n' is float64"), std::string::npos);
  wrong[1] = {n, {7, 0}, 1, {0, 64, 1}, n_shape, nullptr, 0};
  EXPECT_NE(mytorch_run(program, wrong, outputs), 0);
  EXPECT_NE(mytorch_run(program, nullptr, outputs), 0);
  EXPECT_NE(mytorch_run(nullptr, wrong, outputs), 0);
  EXPECT_EQ(mytorch_save(program, (folder_.path() + "/again.mtg").c_str()), 0);
  EXPECT_NE(mytorch_save(program, (folder_.path() + "/none/again.mtg").c_str()), 0);
  mytorch_free(program);
  mytorch_free(nullptr);
}

TEST_F(ProgramFile, NpyFilesRoundTrip) {
  const std::string path = folder_.path() + "/x.npy";
  for (const Tensor& x : {drawn_on_cpu({2, 3}, 1).t(), tensor({1, 0}, kBool),
                          tensor({3}, kInt16).sum(), drawn_on_cpu({0, 4}, 1),
                          drawn_on_cpu({3}, 2).to(kComplex64), drawn_on_cpu({5}, 3).to(kFloat16)}) {
    nn::save_npy(path, x);
    const Tensor back = nn::load_npy(path);
    expect_same(back, x);
  }
  EXPECT_MESSAGE(ErrorCode::kUnsupported, "NumPy has no bfloat16",
                 nn::save_npy(path, ones({2}).to(kBFloat16)));
  // Fortran's order, as NumPy writes it.
  std::string header = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }";
  header.append(117 - header.size(), ' ');
  const int32_t columns[] = {1, 4, 2, 5, 3, 6};
  write_file(path, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" +
                       std::string(reinterpret_cast<const char*>(columns), sizeof(columns)));
  expect_same(nn::load_npy(path), tensor({1, 2, 3, 4, 5, 6}, kInt32).view({2, 3}));
  patch(path, "(2, 3)", "(2, 4)");
  EXPECT_MESSAGE(ErrorCode::kIo, "has 24 bytes of elements", nn::load_npy(path));
}

}  // namespace
}  // namespace mytorch
