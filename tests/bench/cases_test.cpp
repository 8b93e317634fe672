#include "bench/harness/cases.h"

#include <gtest/gtest.h>

#include "bench/harness/arguments.h"
#include "bench/harness/programs.h"
#include "mytorch/error.h"
#include "mytorch/tensor.h"

namespace mytorch::bench {
namespace {

class Cases : public ::testing::Test {
 protected:
  static const std::vector<OpRecord>& catalog() {
    static const std::vector<OpRecord> all = conformance::load_catalog(conformance::share_folder());
    return all;
  }
  static const OpRecord& record(const std::string& name) {
    return *find_record(catalog(), name).record;
  }
  static Json parse(const std::string& op, const std::string& shapes) {
    return parse_shapes(record(op), shapes, Json::object());
  }
  // Returns the message of the error that f throws.
  template <class F>
  static std::string refusal(F f) {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(Cases, NamesSelectOverloadAndForm) {
  EXPECT_EQ(record("add").name, "add.Tensor");
  EXPECT_EQ(record("add.Tensor").name, "add.Tensor");
  const Named inplace = find_record(catalog(), "add_.Tensor");
  EXPECT_EQ(inplace.record->name, "add.Tensor");
  EXPECT_EQ(inplace.form, Form::kInplace);
  EXPECT_EQ(find_record(catalog(), "copy_").form,
            Form::kFunction);  // copy_ is an operator, not an in-place form
  EXPECT_NE(refusal([] { record("no_such"); }).find("mytorch ops"), std::string::npos);
  EXPECT_NE(refusal([] { record("var_mean_"); }).find("no in-place form"), std::string::npos);
}

TEST_F(Cases, ShapesBecomeDescriptionsOfTensors) {
  const Json args = parse("add.Tensor", "4096x16:float16,16:transposed");
  EXPECT_EQ(args["self"], Json::parse(R"({"shape": [4096, 16], "dtype": "float16"})"));
  EXPECT_EQ(args["other"], Json::parse(R"({"shape": [16], "layout": "transposed"})"));
  EXPECT_EQ(parse("linear", "2x3,4x3").size(), 2u);
  EXPECT_EQ(parse("linear", "2x3,4x3,-")["bias"], nullptr);
  EXPECT_EQ(parse("exp", "[]")["self"], Json::parse(R"({"shape": []})"));
  EXPECT_EQ(parse("cat", "2x3+4x3")["tensors"].size(), 2u);
  const Json range = parse("embedding", "10x4,5:low=0:high=10");
  EXPECT_EQ(range["indices"], Json::parse(R"({"shape": [5], "low": 0, "high": 10})"));
  // Arguments that are given otherwise are skipped.
  EXPECT_EQ(parse_shapes(record("mul.Tensor"), "3", {{"self", {{"shape", {3}}}}})["other"],
            Json::parse(R"({"shape": [3]})"));
}

TEST_F(Cases, ATrailingCommaIsNoShape) { EXPECT_EQ(parse("add.Tensor", "4,").size(), 1u); }

struct BadShape {
  const char* name;
  const char* shapes;
  const char* message;  // a part of it
};

class BadShapes : public Cases, public ::testing::WithParamInterface<BadShape> {};

TEST_P(BadShapes, AreRefused) {
  const auto& [name, shapes, message] = GetParam();
  const std::string text = refusal([shapes = shapes] { parse("add.Tensor", shapes); });
  EXPECT_NE(text.find(message), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadShapes,
    ::testing::Values(BadShape{"TooMany", "1,2,3", "takes 2 tensors: other, self"},
                      BadShape{"Letters", "axb", "'a' in 'axb' is not a size"},
                      BadShape{"Negative", "-4", "not a size"},
                      BadShape{"TooLarge", "99999999999999999999", "not a size"},
                      BadShape{"UnknownLayout", "4:sideways", "'sideways' in '4:sideways'"},
                      BadShape{"BoundIsNoNumber", "4:low=x", "'x' in '4:low=x'"},
                      BadShape{"FirstIsMissing", ",4", "a shape is missing"},
                      BadShape{"ViewOfUnknown", "4,4:of=nobody", "view of 'nobody'"},
                      BadShape{"ViewOfItself", "4,4:of=other", "view of 'other'"},
                      BadShape{"RequiredIsAbsent", "4,-", "needs its argument 'other'"}),
    [](const auto& info) { return info.param.name; });

// The reproducer of a row must describe the measured case.
TEST_F(Cases, ReproducersOfSuitesDescribeTheSameCases) {
  int cases = 0;
  auto all = suite_cases(catalog(), conformance::share_folder(), "");
  for (Case& c : suite_cases(catalog(), conformance::share_folder(), "gpu")) {
    all.push_back(std::move(c));
  }
  for (const Case& c : all) {
    if (c.record == nullptr) {
      EXPECT_EQ(find_program(c.program).name, c.program);
      EXPECT_EQ(reproducer(c, 2, "x"), "mytorch bench --suite " + c.suite + " --case " + c.name +
                                           " --threads 2 --backend x");
      continue;
    }
    ++cases;
    Json tensors = Json::object();
    for (const auto& [name, value] : c.args.items()) {
      const bool list = c.record->arg(name)->is_tensor_list();
      if (list || (c.record->arg(name)->is_tensor() && value.is_object())) tensors[name] = value;
    }
    Json parsed = parse_shapes(*c.record, shapes_text(*c.record, c.args), Json::object());
    for (auto it = parsed.begin(); it != parsed.end();) {
      it = it->is_null() ? parsed.erase(it) : std::next(it);
    }
    EXPECT_EQ(parsed, tensors) << c.name;
  }
  EXPECT_GT(cases, 50);
}

TEST_F(Cases, ReproducerHasFormShapesArgumentsTypeThreadsAndBackend) {
  Case c;
  c.record = &record("add.Tensor");
  c.form = Form::kInplace;
  c.args = Json::parse(R"({"self": {"shape": [4, 8]}, "other": {"shape": [8]}, "alpha": 2})");
  EXPECT_EQ(reproducer(c, 2, "cpu-openmp"),
            "mytorch bench add_.Tensor --shapes 4x8,8 --set alpha=2 --dtype float32 --threads 2 "
            "--backend cpu-openmp");
  c.args["other"] = 3;
  c.form = Form::kOut;
  EXPECT_EQ(reproducer(c, 1, ""),
            "mytorch bench add.Tensor --form out --shapes 4x8 --set other=3 --set alpha=2 "
            "--dtype float32 --threads 1");
}

TEST_F(Cases, DefaultCasesFollowTheKindOfRecord) {
  const auto of = [&](const char* op, const Json& given) {
    return cases_of(record(op), Form::kFunction, given, {}, "");
  };
  EXPECT_EQ(of("exp", Json::object()).size(), 3u);              // three sizes
  EXPECT_EQ(of("sum.dim_IntList", Json::object()).size(), 3u);  // all, rows, columns
  const auto softmax = of("softmax.int", Json::parse(R"({"self": {"shape": [4, 4]}})"));
  ASSERT_EQ(softmax.size(), 1u);
  EXPECT_TRUE(softmax[0].args.contains("dim"));  // required: from the first sample
  EXPECT_NE(refusal([&] { of("exp", {{"nothing", 1}}); }).find("it has self"), std::string::npos);
}

TEST_F(Cases, ArgumentsHaveTheGivenLayoutsAndDefaults) {
  Case c;
  c.record = &record("add.Tensor");
  c.args = Json::parse(R"({"self": {"shape": [3, 5]},
                           "other": {"shape": [5, 3], "layout": "transposed", "of": "self"}})");
  const auto args = make_arguments(c);
  ASSERT_EQ(args.size(), 3u);
  EXPECT_EQ(args[0].tensor().raw_data(), args[1].tensor().raw_data());
  EXPECT_EQ(args[1].tensor().stride(0), 1);
  EXPECT_EQ(args[2].scalar().to_int(), 1);  // alpha's default

  c.record = &record("max_pool2d");
  c.args = Json::parse(R"({"self": {"shape": [2, 3, 4, 4], "layout": "channels_last"},
                           "kernel_size": [2, 2]})");
  const Tensor input = make_arguments(c)[0].tensor();
  EXPECT_EQ(input.stride(1), 1);
  EXPECT_EQ(input.stride(3), 3);
  EXPECT_EQ(input.stride(0), 48);

  c.record = &record("contiguous");
  const auto strides = [&](const char* self) {
    c.args = {{"self", Json::parse(self)}};
    const Tensor made = make_arguments(c)[0].tensor();
    return std::vector<int64_t>(made.strides().begin(), made.strides().end());
  };
  using Strides = std::vector<int64_t>;
  EXPECT_EQ(strides(R"({"shape": [2, 3, 5, 7], "layout": "channels_first"})"),
            (Strides{105, 5, 1, 15}));
  EXPECT_EQ(strides(R"({"shape": [2, 3, 5, 7], "layout": "heads"})"), (Strides{105, 7, 21, 1}));
  EXPECT_EQ(strides(R"({"shape": [3, 5], "layout": "padded"})"), (Strides{10, 1}));

  // Indices are valid for every dimension.
  c.record = &record("gather");
  c.args = Json::parse(R"({"self": {"shape": [9, 4]}, "dim": 0, "index": {"shape": [100, 4]}})");
  EXPECT_NO_THROW(call("gather", make_arguments(c)));

  c.args = Json::parse(R"({"self": {"shape": [9, 4]}, "dim": "x", "index": {"shape": [1, 4]}})");
  EXPECT_NE(refusal([&] { make_arguments(c); }).find("takes int as 'dim'"), std::string::npos);
  c.args = Json::parse(R"({"dim": 0})");
  EXPECT_NE(refusal([&] { make_arguments(c); }).find("--shapes"), std::string::npos);
}

TEST_F(Cases, WrittenArgumentsAreCopiesAndCanBeRestored) {
  Case c;
  c.record = &record("add.Tensor");
  c.form = Form::kInplace;
  c.args = Json::parse(R"({"self": {"shape": [4]}, "other": 1})");
  const auto originals = make_arguments(c);
  const auto written = written_arguments(c);
  ASSERT_EQ(written, std::vector<size_t>{0});
  auto copies = with_copies(originals, written);
  const float before = originals[0].tensor().const_data<float>()[0];
  call("add_", {copies[0], 1.0});
  EXPECT_EQ(originals[0].tensor().const_data<float>()[0], before);
  EXPECT_NE(copies[0].tensor().const_data<float>()[0], before);
  restore(originals, written, copies);
  EXPECT_EQ(copies[0].tensor().const_data<float>()[0], before);
  c.record = &record("native_batch_norm");
  c.form = Form::kFunction;
  EXPECT_EQ(written_arguments(c).size(), 2u);  // the running mean and variance
}

// Its cases are too large for a CPU.
TEST_F(Cases, AllSuitesLeaveOutTheOneForGpus) {
  for (const Case& c : suite_cases(catalog(), conformance::share_folder(), "")) {
    EXPECT_NE(c.suite, "gpu");
  }
}

TEST_F(Cases, AnUnknownSuiteListsTheSuites) {
  const std::string text =
      refusal([&] { suite_cases(catalog(), conformance::share_folder(), "none"); });
  EXPECT_NE(text.find("pointwise"), std::string::npos) << text;
}

}  // namespace
}  // namespace mytorch::bench
