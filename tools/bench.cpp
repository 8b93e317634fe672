// `mytorch bench`.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>

#include "bench/harness/cases.h"
#include "bench/harness/report.h"
#include "bench/harness/runner.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/threads.h"
#include "tests/conformance/catalog.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

struct BenchArguments {
  std::string op;
  std::string suite;
  std::vector<std::string> only;  // cases
  std::vector<std::string> backends;
  std::string shapes;
  std::vector<std::string> set;
  std::string form;
  std::vector<std::string> dtypes;
  int threads = 0;
  std::string cache = "warm";
  double seconds = 0.4;
  std::string json;
  std::string compare;
};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kValue, "[bench] " + what);
}

void check_backends(const std::vector<std::string>& names) {
  std::set<std::string> known = {"chosen"};
  for (const Backend* backend : backends()) {
    if (backend->device_slot == kCpuSlot) known.insert(backend->name);
  }
  for (const std::string& name : names) {
    if (known.contains(name)) continue;
    std::string list;
    for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
    refuse("no backend '" + name + "' serves the CPU; there are " + list + ": see `mytorch info`");
  }
}

// name=value, the value being JSON, or text.
bench::Json set_arguments(const std::vector<std::string>& given) {
  bench::Json args = bench::Json::object();
  for (const std::string& text : given) {
    const size_t at = text.find('=');
    if (at == std::string::npos || at == 0) {
      refuse("--set takes NAME=VALUE, not '" + text + "'");
    }
    const std::string value = text.substr(at + 1);
    bench::Json json = bench::Json::parse(value, nullptr, false);
    args[text.substr(0, at)] = json.is_discarded() ? bench::Json(value) : json;
  }
  return args;
}

std::vector<bench::Case> cases_of(const std::vector<bench::OpRecord>& catalog,
                                  const std::string& share, const BenchArguments& given) {
  std::vector<bench::Case> cases;
  if (!given.suite.empty()) {
    if (!given.op.empty()) refuse("give an operator or --suite, not both");
    if (!given.shapes.empty() || !given.set.empty() || !given.form.empty()) {
      refuse(
          "the cases of a suite have their own arguments: --shapes, --set and --form go with an "
          "operator");
    }
    cases = bench::suite_cases(catalog, share, given.suite == "all" ? "" : given.suite);
    std::erase_if(cases, [&](const bench::Case& c) {
      return !given.only.empty() &&
             std::find(given.only.begin(), given.only.end(), c.name) == given.only.end();
    });
    if (cases.empty()) refuse("suite '" + given.suite + "' has no such case");
  } else {
    if (given.op.empty()) refuse("what is to be measured? Name an operator, or a --suite");
    if (!given.only.empty()) refuse("--case goes with --suite");
    auto [record, form] = bench::find_record(catalog, given.op);
    if (given.form == "out") form = bench::Form::kOut;
    bench::Json args = set_arguments(given.set);
    if (!given.shapes.empty()) args.update(bench::parse_shapes(*record, given.shapes, args));
    const auto of_suites = bench::suite_cases(catalog, share, "");
    cases = bench::cases_of(*record, form, args, of_suites, "");
  }
  if (given.dtypes.empty()) return cases;
  std::vector<bench::Case> typed;
  for (bench::Case c : cases) {
    for (const std::string& dtype : given.dtypes) {
      c.dtype = dtype;
      typed.push_back(c);
    }
  }
  return typed;
}

int bench_command(const BenchArguments& given) {
  load_default_backends();
  check_backends(given.backends);
  const std::string share = conformance::share_folder();
  const auto catalog = conformance::load_catalog(share);
  const auto cases = cases_of(catalog, share, given);
  // Before minutes of measurements, so that a wrong name costs none of them.
  std::vector<bench::Other> others;
  if (!given.compare.empty()) others = bench::read_results(given.compare);
  if (!given.json.empty() && !std::ofstream(given.json, std::ios::app)) {
    throw Error(ErrorCode::kIo, "[bench] cannot write " + given.json);
  }

  bench::Options options;
  options.backends = given.backends;
  options.threads = given.threads > 0 ? given.threads : num_threads();
  options.warm = given.cache != "cold";
  options.cold = given.cache != "warm";
  options.seconds = given.seconds;
  const bench::Machine machine = bench::measure_machine(options.threads);
  bench::Table table(std::cout);
  table.machine(machine, options.threads);
  std::vector<bench::Row> rows;
  for (const bench::Case& c : cases) {
    std::vector<bench::Row> of_case;
    try {
      of_case = bench::measure(catalog, c, options, std::cerr);
    } catch (const Error& error) {
      // One case that does not run, as of a type that it does not take, is no reason to lose a
      // suite.
      if (given.suite.empty()) throw;
      std::cerr << c.name << ": " << error.what() << "\n";
    }
    for (bench::Row& row : of_case) {
      table.row(row);
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) refuse("nothing was measured");
  if (!given.json.empty()) {
    bench::write_json(bench::to_json(rows, machine, options.threads), given.json);
  }
  if (!given.compare.empty()) bench::print_comparison(rows, others, std::cout);
  return 0;
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

Run add_bench(CLI::App& app) {
  auto given = std::make_shared<BenchArguments>();
  app.add_option("op", given->op, "an operator, by full or base name; name_ is its in-place form");
  app.add_option("--suite", given->suite,
                 "overhead, pointwise, reduce, matmul, conv, norm, index, optim, or all");
  app.add_option("--case", given->only, "only these cases of the suite");
  app.add_option("--shapes", given->shapes,
                 "of the tensors, in order: 4096x1024,1024:float16,4096x4096:transposed");
  app.add_option("--set", given->set, "other arguments: dim=1 stride=[2,2]");
  app.add_option("--form", given->form, "out: into a tensor that is there")
      ->check(CLI::IsMember({"function", "out"}));
  app.add_option("--dtype", given->dtypes, "of tensors that name no type; default: float32")
      ->delimiter(',')
      ->check(is_dtype);
  app.add_option("--backend", given->backends,
                 "backends to compare, in turns; `chosen` is what the dispatcher takes; default: "
                 "all but the oracle")
      ->delimiter(',');
  app.add_option("--threads", given->threads, "default: as MYTORCH_NUM_THREADS says")
      ->check(CLI::Range(1, 4096));
  app.add_option("--cache", given->cache, "warm, cold (flushed before each call) or both")
      ->check(CLI::IsMember({"warm", "cold", "both"}));
  app.add_option("--seconds", given->seconds, "of measuring, for each row")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--json", given->json, "write the results there, in Google Benchmark's format");
  app.add_option("--compare", given->compare, "print ratios to the results in such a file");
  return [given] { return bench_command(*given); };
}

}  // namespace mytorch::tools
