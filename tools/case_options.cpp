#include "tools/case_options.h"

#include <algorithm>

#include "mytorch/error.h"

namespace mytorch::tools {
namespace {

// Parses NAME=VALUE; the value is JSON or, failing that, text.
bench::Json set_arguments(const std::vector<std::string>& given, const std::string& command) {
  bench::Json args = bench::Json::object();
  for (const std::string& text : given) {
    const size_t at = text.find('=');
    if (at == std::string::npos || at == 0) {
      throw Error(ErrorCode::kValue,
                  "[" + command + "] --set takes NAME=VALUE, not '" + text + "'");
    }
    const std::string value = text.substr(at + 1);
    bench::Json json = bench::Json::parse(value, nullptr, false);
    args[text.substr(0, at)] = json.is_discarded() ? bench::Json(value) : json;
  }
  return args;
}

std::string is_dtype(const std::string& name) {
  try {
    dtype_from_name(name.c_str());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

void add_case_options(CLI::App& app, CaseOptions& options) {
  app.add_option("op", options.op, "an operator, by full or base name; NAME_ is its in-place form");
  app.add_option("--suite", options.suite,
                 "overhead, pointwise, reduce, matmul, conv, norm, attention, index, optim, gpu, "
                 "or all, but gpu; of `bench`, also machine, or comm under mytorch launch");
  app.add_option("--case", options.only, "only these cases of the suite");
  app.add_option("--shapes", options.shapes,
                 "shapes of the tensors, in order: 4096x1024,1024:float16,4096x4096:transposed");
  app.add_option("--set", options.set, "other arguments, such as dim=1 stride=[2,2]");
  app.add_option("--form", options.form, "function, or out to write to an existing tensor")
      ->check(CLI::IsMember({"function", "out"}));
  app.add_option("--dtype", options.dtypes,
                 "types of tensors without one in --shapes (default: float32)")
      ->delimiter(',')
      ->check(is_dtype);
}

std::vector<bench::Case> select_cases(const std::vector<bench::OpRecord>& catalog,
                                      const std::string& share, const CaseOptions& options,
                                      const std::string& command) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kValue, "[" + command + "] " + what);
  };
  std::vector<bench::Case> cases;
  if (!options.suite.empty()) {
    if (!options.op.empty()) refuse("give either an operator or --suite, not both");
    if (!options.shapes.empty() || !options.set.empty() || !options.form.empty()) {
      refuse(
          "--shapes, --set and --form require an operator: the cases of a suite have their own "
          "arguments");
    }
    cases = bench::suite_cases(catalog, share, options.suite == "all" ? "" : options.suite);
    std::erase_if(cases, [&](const bench::Case& c) {
      return !options.only.empty() &&
             std::find(options.only.begin(), options.only.end(), c.name) == options.only.end();
    });
    if (cases.empty()) refuse("suite '" + options.suite + "' has no such case");
  } else {
    if (options.op.empty()) refuse("give an operator or --suite");
    if (!options.only.empty()) refuse("--case requires --suite");
    auto [record, form] = bench::find_record(catalog, options.op);
    if (options.form == "out") form = bench::Form::kOut;
    bench::Json args = set_arguments(options.set, command);
    if (!options.shapes.empty()) args.update(bench::parse_shapes(*record, options.shapes, args));
    const auto of_suites = bench::suite_cases(catalog, share, "");
    cases = bench::cases_of(*record, form, args, of_suites, "");
  }
  if (options.dtypes.empty()) return cases;
  std::vector<bench::Case> typed;
  for (bench::Case c : cases) {
    for (const std::string& dtype : options.dtypes) {
      c.dtype = dtype;
      typed.push_back(c);
    }
  }
  return typed;
}

}  // namespace mytorch::tools
