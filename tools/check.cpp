// `mytorch check`.
#include "conformance/check.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <random>

#include "conformance/contract.h"
#include "conformance/custom.h"
#include "conformance/isolate.h"
#include "conformance/missing.h"
#include "conformance/models.h"
#include "conformance/page.h"
#include "conformance/score.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "mytorch/backends.h"
#include "mytorch/dtype.h"
#include "mytorch/error.h"
#include "mytorch/version.h"
#include "tools/commands.h"
#include "tools/suggest.h"

namespace mytorch::tools {
namespace {

struct CheckArguments {
  conformance::Options options;
  std::string seed = "0";
  bool goldens = false;
  bool contract_only = false;
  std::vector<std::string> promises;  // names of contract tests
  double seconds = 120;
  std::string model;  // network for the ranking of missing kernels
  std::string json;
  std::string report;
  std::vector<std::string> backends;
};

void check_names(const std::vector<conformance::OpRecord>& catalog,
                 const conformance::Options& options) {
  for (const std::string& name : options.only) {
    const bool known = std::any_of(catalog.begin(), catalog.end(), [&](const auto& op) {
      return op.name == name || op.name.substr(0, op.name.find('.')) == name;
    });
    if (!known) throw Error(ErrorCode::kValue, explain_unknown(name, catalog));
  }
}

// Returns the plug-ins' operators that have a kernel on the device.
std::vector<conformance::OpRecord> custom_on(const std::string& device) {
  const int slot = checked_device_slot(Device(device));
  auto records = conformance::custom_records();
  std::erase_if(records, [&](const conformance::OpRecord& op) {
    return kernels(*find_op(op.name), slot).empty();
  });
  return records;
}

// Appends the plug-ins' operators, with the samples of options.samples if given.
void add_custom(std::vector<conformance::OpRecord> custom, const conformance::Options& options,
                std::vector<conformance::OpRecord>* catalog) {
  if (!options.samples.empty()) conformance::read_samples(options.samples, custom);
  for (auto& record : custom) catalog->push_back(std::move(record));
  check_names(*catalog, options);
}

void use_backend(conformance::Options& options) {
  for (const BackendInfo& info : backend_infos()) {
    if (info.name != options.backend || !info.error.empty()) continue;
    options.device = info.device_type;
    return;
  }
  throw Error(ErrorCode::kValue,
              "no backend '" + options.backend + "' is loaded: see `mytorch info`");
}

// Writes the results of each backend to the files that the arguments name.
void write_results(const CheckArguments& given, const std::vector<conformance::Json>& runs) {
  if (!given.json.empty()) {
    std::ofstream file(given.json);
    file << (runs.size() == 1 ? runs.front() : conformance::Json(runs)).dump(1) << "\n";
    if (!file.flush()) throw Error(ErrorCode::kIo, "[check] cannot write " + given.json);
  }
  if (given.report.empty()) return;
  char date[64] = "";
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(date, sizeof(date), "%F %R", localtime_r(&now, &local));
  conformance::write_page("check", "mytorch check",
                          {{"runs", runs}, {"date", date}, {"version", MYTORCH_VERSION_STRING}},
                          given.report);
}

void write_result(const CheckArguments& given,
                  const std::vector<conformance::ContractResult>& contract,
                  const conformance::Report& report,
                  const std::optional<conformance::Ranking>& ranking = {}) {
  conformance::Json json = conformance::to_json(contract, report, given.options);
  if (ranking.has_value()) json["model"] = conformance::to_json(*ranking);
  write_results(given, {json});
}

// Checks backends that the default search finds.
int check_loaded(CheckArguments given) {
  load_default_backends();
  if (given.backends.empty()) given.backends = {""};  // the dispatcher's choice
  std::vector<conformance::Json> runs;
  bool ok = true;
  for (const std::string& backend : given.backends) {
    conformance::Options options = given.options;
    options.backend = backend;
    if (!backend.empty()) use_backend(options);
    if (given.backends.size() > 1) std::cout << backend << ":\n";
    auto catalog = conformance::load_catalog(conformance::share_folder());
    add_custom(custom_on(options.device), options, &catalog);
    const auto report = given.goldens ? conformance::check_goldens(catalog, options, std::cout)
                                      : conformance::check(catalog, options, std::cout);
    if (report.cases == 0) {
      throw Error(ErrorCode::kValue, "nothing to check: no operator has a matching case");
    }
    runs.push_back(conformance::to_json({}, report, options));
    ok = ok && report.ok();
  }
  write_results(given, runs);
  return ok ? 0 : 1;
}

// Checks a library. Each promise of the contract and each operator runs in a separate process,
// which may crash.
int check_library(CheckArguments given) {
  conformance::Options& options = given.options;
  if (given.goldens || !given.backends.empty()) {
    throw Error(ErrorCode::kValue, "[check] --backend and --goldens do not apply to a library");
  }
  options.plugin = std::filesystem::absolute(options.plugin).string();
  auto catalog = conformance::load_catalog(conformance::share_folder());
  const bool all = options.only.empty() && options.number < 0;
  std::vector<conformance::ContractResult> contract;
  bool kept = true;
  if (all) {
    contract = conformance::check_contract(options.plugin, given.promises, given.seconds);
    std::cout << "contract of " << options.plugin << "\n";
    for (const auto& result : contract) {
      kept = kept && result.passed();
      std::cout << "  "
                << (result.passed() ? result.skipped.empty() ? "pass  " : "-     " : "FAIL  ")
                << result.name << ": " << result.promise;
      if (!result.passed()) std::cout << "\n        " << result.what;
      if (!result.skipped.empty()) std::cout << " (" << result.skipped << ")";
      std::cout << "\n";
    }
    std::cout << std::endl;
    if (!contract.empty() && contract[0].name == "load" && !contract[0].passed()) {
      write_result(given, contract, {});
      return 1;
    }
  }
  if (given.contract_only && given.model.empty()) {
    write_result(given, contract, {});
    return kept ? 0 : 1;
  }
  // A child loads the library and reports its name, device and operators.
  std::vector<conformance::OpRecord> custom;
  const auto ended = conformance::run_in_child(
      [&](const conformance::Tell& tell) {
        load_backend(options.plugin);
        for (const BackendInfo& info : backend_infos()) {
          if (info.path != options.plugin) continue;
          tell(info.device_type + " " + info.name);
        }
        for (const auto& record : conformance::custom_records()) {
          tell(conformance::describe_custom(record).dump());
        }
      },
      [&](const std::string& line) {
        if (line.starts_with("{")) {
          custom.push_back(conformance::custom_record(conformance::Json::parse(line)));
          return;
        }
        const size_t space = line.find(' ');
        options.device = line.substr(0, space);
        options.backend = line.substr(space + 1);
      },
      given.seconds);
  if (!ended.well || options.backend.empty()) {
    throw Error(ErrorCode::kIo, "[check] " + options.plugin +
                                    " cannot be loaded: the process that loads it " + ended.how);
  }
  add_custom(std::move(custom), options, &catalog);
  const auto prepare = [&] {
    load_backend(options.plugin);
    allow_fallback(options.fallback);
  };
  conformance::Report report;
  if (!given.contract_only) {
    report = conformance::check_in_children(catalog, options, prepare, given.seconds, std::cout);
    if (report.cases == 0) {
      throw Error(ErrorCode::kValue, "nothing to check: no operator has a matching case");
    }
    conformance::print_table(report, options, std::cout);
  }
  std::optional<conformance::Ranking> ranking;
  if (!given.model.empty()) {
    ranking = conformance::rank_in_child(given.model, options.device, options.backend, prepare,
                                         given.seconds);
    conformance::print_ranking(*ranking, std::cout);
  }
  write_result(given, contract, report, ranking);
  return kept && (given.contract_only || report.ok()) ? 0 : 1;
}

}  // namespace

Run add_check(CLI::App& app) {
  auto given = std::make_shared<CheckArguments>();
  conformance::Options* options = &given->options;
  app.add_option(
      "library", options->plugin,
      "a backend's shared library: test its contract and its operators, isolated in child "
      "processes");
  app.add_option("--backend", given->backends,
                 "the backends to test (default: the dispatcher's choice)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--device", options->device, "the device type, if no backend is named");
  app.add_option("--only", options->only, "only these operators, by full or base name");
  app.add_option("--dtype", options->dtype, "only this type, such as float32")
      ->check([](const std::string& name) -> std::string {
        try {
          dtype_from_name(name.c_str());
        } catch (const Error& error) {
          return error.what();
        }
        return "";
      });
  app.add_option("--seed", given->seed, "seed of the inputs: a number, or `random`")
      ->check([](const std::string& text) {
        uint64_t value = 0;
        const char* end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, value);
        const bool number = read.ec == std::errc() && read.ptr == end;
        if (number || text == "random") return std::string();
        return "'" + text + "' is neither a non-negative integer nor `random`";
      });
  app.add_option(
      "--samples", options->samples,
      "JSON file of sample calls of the library's own operators (default: calls that their "
      "schemas suggest)");
  app.add_option("--case", options->number, "only the case with this number");
  app.add_flag("--quick", options->quick, "run one case per operator and kind of type");
  app.add_flag("--gradients,!--no-gradients", options->gradients,
               "compare gradients with finite differences");
  app.add_flag("--edges", options->edges,
               "instead check gradients of operands without dimensions, without elements, with "
               "sizes of 1, and broadcast");
  app.add_flag("--compiled", options->compiled,
               "also run each case in a compiled function, and compare bit for bit");
  app.add_flag("--stress", options->stress,
               "also check large odd sizes and calls from several threads");
  app.add_flag("--verbose", options->verbose, "print a line per operator");
  app.add_flag("--goldens", given->goldens,
               "compare with recorded results of PyTorch instead of the reference");
  CLI::Option* contract =
      app.add_option(
             "--contract", given->promises,
             "test only the library's contract, or only these promises of it, and no operators")
          ->expected(0, -1);
  app.add_flag("--fallback,!--no-fallback", options->fallback,
               "let the library's missing kernels run on the CPU");
  app.add_option("--missing", options->missing,
                 "with --no-fallback, primitives whose kernels the library may lack: cases that "
                 "need one are counted, not failed");
  app.add_option("--seconds", given->seconds, "time limit for one case of a library")
      ->check(CLI::Range(0.1, 1e6));
  app.add_option(
         "--model", given->model,
         "train this network on the library's device and rank missing kernels by the most time "
         "each could save; with --contract, without checking operators")
      ->check(CLI::IsMember(conformance::model_names()));
  app.add_option("--json", given->json, "also write the results to this file, as JSON");
  app.add_option("--report", given->report,
                 "write a page for a browser to this file: operators by type and route");
  return [given, contract] {
    given->contract_only = contract->count() > 0;
    // CLI11 reports --contract without a name as an empty name.
    std::erase(given->promises, "");
    given->options.seed =
        given->seed == "random" ? std::random_device()() : std::stoull(given->seed);
    conformance::check_writable("check", given->json);
    conformance::check_writable("check", given->report);
    return given->options.plugin.empty() ? check_loaded(*given) : check_library(*given);
  };
}

}  // namespace mytorch::tools
