// `mytorch check`.
#include "tests/conformance/check.h"

#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <random>

#include "mytorch/backends.h"
#include "mytorch/dtype.h"
#include "mytorch/error.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

int run(conformance::Options options, const std::string& seed, bool goldens) {
  load_default_backends();
  options.seed = seed == "random" ? std::random_device()() : std::stoull(seed);
  if (!options.backend.empty()) {
    bool found = false;
    for (const BackendInfo& info : backend_infos()) {
      if (info.name != options.backend || !info.error.empty()) continue;
      options.device = info.device_type;
      found = true;
    }
    if (!found) {
      throw Error(ErrorCode::kValue,
                  "no backend '" + options.backend + "' is loaded: see `mytorch info`");
    }
  }
  const auto catalog = conformance::load_catalog(conformance::share_folder());
  for (const std::string& name : options.only) {
    const bool known = std::any_of(catalog.begin(), catalog.end(), [&](const auto& op) {
      return op.name == name || op.name.substr(0, op.name.find('.')) == name;
    });
    if (!known) {
      throw Error(ErrorCode::kValue, "there is no operator '" + name + "': see `mytorch ops`");
    }
  }
  const auto report = goldens ? conformance::check_goldens(catalog, options, std::cout)
                              : conformance::check(catalog, options, std::cout);
  if (report.cases == 0) {
    throw Error(ErrorCode::kValue, "nothing to check: no operator has such a case");
  }
  return report.ok() ? 0 : 1;
}

}  // namespace

Run add_check(CLI::App& app) {
  auto options = std::make_shared<conformance::Options>();
  auto seed = std::make_shared<std::string>("0");
  auto goldens = std::make_shared<bool>(false);
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
  app.add_option("--seed", *seed, "of the inputs: a number, or `random`")
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
  app.add_flag("--goldens", *goldens, "compare with results of PyTorch instead");
  return [=] { return run(*options, *seed, *goldens); };
}

}  // namespace mytorch::tools
