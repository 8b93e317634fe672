// `mytorch check`.
#include "tests/conformance/check.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>

#include "mytorch/backends.h"
#include "mytorch/dtype.h"
#include "mytorch/error.h"
#include "tests/conformance/contract.h"
#include "tests/conformance/isolate.h"
#include "tests/conformance/score.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

struct CheckArguments {
  conformance::Options options;
  std::string seed = "0";
  bool goldens = false;
  bool fallback = true;
  bool contract_only = false;
  std::vector<std::string> promises;  // of the contract
  double seconds = 120;
  std::string json;
};

std::vector<conformance::OpRecord> known_ops(const conformance::Options& options) {
  auto catalog = conformance::load_catalog(conformance::share_folder());
  for (const std::string& name : options.only) {
    const bool known = std::any_of(catalog.begin(), catalog.end(), [&](const auto& op) {
      return op.name == name || op.name.substr(0, op.name.find('.')) == name;
    });
    if (!known) {
      throw Error(ErrorCode::kValue, "there is no operator '" + name + "': see `mytorch ops`");
    }
  }
  return catalog;
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

void write_json(const CheckArguments& given,
                const std::vector<conformance::ContractResult>& contract,
                const conformance::Report& report) {
  if (given.json.empty()) return;
  std::ofstream file(given.json);
  file << conformance::to_json(contract, report, given.options).dump(1) << "\n";
  if (!file) throw Error(ErrorCode::kIo, "[check] cannot write " + given.json);
}

// A backend that is loaded as all others are.
int check_loaded(CheckArguments given) {
  load_default_backends();
  conformance::Options& options = given.options;
  if (!options.backend.empty()) use_backend(options);
  const auto catalog = known_ops(options);
  const auto report = given.goldens ? conformance::check_goldens(catalog, options, std::cout)
                                    : conformance::check(catalog, options, std::cout);
  if (report.cases == 0) {
    throw Error(ErrorCode::kValue, "nothing to check: no operator has such a case");
  }
  write_json(given, {}, report);
  return report.ok() ? 0 : 1;
}

// A library that nobody knows yet: each of its promises, and each operator, in processes that may
// crash.
int check_library(CheckArguments given) {
  conformance::Options& options = given.options;
  if (given.goldens || !options.backend.empty()) {
    throw Error(ErrorCode::kValue, "[check] a library is checked without --backend and --goldens");
  }
  options.plugin = std::filesystem::absolute(options.plugin).string();
  const auto catalog = known_ops(options);
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
      write_json(given, contract, {});
      return 1;
    }
  }
  if (given.contract_only) {
    write_json(given, contract, {});
    return kept ? 0 : 1;
  }
  // Its name and device, from a process that loads it.
  const auto ended = conformance::run_in_child(
      [&](const conformance::Tell& tell) {
        load_backend(options.plugin);
        for (const BackendInfo& info : backend_infos()) {
          if (info.path != options.plugin) continue;
          tell(info.device_type + " " + info.name);
        }
      },
      [&](const std::string& line) {
        const size_t space = line.find(' ');
        options.device = line.substr(0, space);
        options.backend = line.substr(space + 1);
      },
      given.seconds);
  if (!ended.well || options.backend.empty()) {
    throw Error(ErrorCode::kIo,
                "[check] " + options.plugin + " cannot be loaded: the process " + ended.how);
  }
  const auto prepare = [&] {
    load_backend(options.plugin);
    allow_fallback(given.fallback);
  };
  const auto report =
      conformance::check_in_children(catalog, options, prepare, given.seconds, std::cout);
  if (report.cases == 0) {
    throw Error(ErrorCode::kValue, "nothing to check: no operator has such a case");
  }
  conformance::print_table(report, options, std::cout);
  write_json(given, contract, report);
  return kept && report.ok() ? 0 : 1;
}

}  // namespace

Run add_check(CLI::App& app) {
  auto given = std::make_shared<CheckArguments>();
  conformance::Options* options = &given->options;
  app.add_option("library", options->plugin,
                 "a backend's shared library: its contract and its operators, whatever it does");
  app.add_option("--backend", options->backend,
                 "the backend to test; default: what the dispatcher chooses");
  app.add_option("--device", options->device, "the device type, where no backend is named");
  app.add_option("--only", options->only, "operators, by full or base name");
  app.add_option("--dtype", options->dtype, "only this type, like float32")
      ->check([](const std::string& name) -> std::string {
        try {
          dtype_from_name(name.c_str());
        } catch (const Error& error) {
          return error.what();
        }
        return "";
      });
  app.add_option("--seed", given->seed, "of the inputs: a number, or `random`")
      ->check([](const std::string& text) {
        uint64_t value = 0;
        const char* end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, value);
        const bool number = read.ec == std::errc() && read.ptr == end;
        if (number || text == "random") return std::string();
        return "'" + text + "' is neither a whole number from 0 nor `random`";
      });
  app.add_option("--case", options->number, "one case of an operator, by its number");
  app.add_flag("--quick", options->quick, "one case for each operator and kind of type");
  app.add_flag("--gradients,!--no-gradients", options->gradients,
               "compare gradients with differences");
  app.add_flag("--verbose", options->verbose, "a line for each operator");
  app.add_flag("--goldens", given->goldens, "compare with results of PyTorch instead");
  CLI::Option* contract =
      app.add_option("--contract", given->promises,
                     "of a library, only these promises of the contract, or all, and no operators")
          ->expected(0, -1);
  app.add_flag("--fallback,!--no-fallback", given->fallback,
               "of a library, let operators without a kernel run on the CPU");
  app.add_option("--seconds", given->seconds, "of a library, how long one case may take")
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--json", given->json, "also write the results to this file");
  return [given, contract] {
    given->contract_only = contract->count() > 0;
    // Without a name CLI11 gives an empty one.
    std::erase(given->promises, "");
    given->options.seed =
        given->seed == "random" ? std::random_device()() : std::stoull(given->seed);
    return given->options.plugin.empty() ? check_loaded(*given) : check_library(*given);
  };
}

}  // namespace mytorch::tools
