// `mytorch tune` and `mytorch explain`.
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "bench/harness/arguments.h"
#include "bench/harness/subject.h"
#include "conformance/custom.h"
#include "mytorch/backends.h"
#include "mytorch/choice.h"
#include "mytorch/error.h"
#include "mytorch/grad_mode.h"
#include "mytorch/threads.h"
#include "tools/case_options.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

struct TuneArguments {
  CaseOptions cases;
  std::vector<int> threads;
  bool clear = false;
};

std::string time_text(double seconds) {
  if (seconds < 0) return "not measured";
  std::ostringstream text;
  text << std::setprecision(4);
  if (seconds < 1e-3) {
    text << seconds * 1e6 << " us";
  } else {
    text << seconds * 1e3 << " ms";
  }
  return text.str();
}

void print(const Explanation& e) {
  std::cout << e.op << "  " << e.call << "\n";
  for (const ExplainedKernel& c : e.kernels) {
    std::cout << "  " << (c.chosen ? "* " : "  ") << std::left << std::setw(40)
              << c.backend + "/" + c.kernel << " priority " << std::setw(4) << c.priority;
    if (!c.reason.empty()) {
      std::cout << " " << c.reason;
    } else {
      std::cout << " accepts the call, " << time_text(c.seconds);
    }
    std::cout << (c.chosen ? "; chosen by " + e.by : "") << "\n";
  }
}

std::vector<Explanation> explain_case(const bench::Case& c) {
  // By name, because some arguments are keyword-only.
  const std::vector<Value> values = bench::make_arguments(c);
  std::vector<NamedValue> named;
  for (size_t i = 0; i < values.size(); ++i) {
    named.emplace_back(c.record->args[i].name, values[i]);
  }
  return explain(c.record->name, {}, named);
}

int explain_command(const TuneArguments& given) {
  load_default_backends();
  const NoGradGuard no_grad;
  if (!given.threads.empty()) set_num_threads(given.threads[0]);
  const std::string share = conformance::share_folder();
  const auto catalog = conformance::all_records(share);
  for (const bench::Case& c : select_cases(catalog, share, given.cases, "explain")) {
    if (c.record == nullptr) continue;  // a program of several operators
    const auto calls = explain_case(c);
    if (calls.empty()) std::cout << c.record->name << ": this call needs no kernel\n";
    for (const Explanation& e : calls) print(e);
  }
  return 0;
}

int tune_command(const TuneArguments& given) {
  load_default_backends();
  const NoGradGuard no_grad;
  if (given.clear) clear_choice_table();
  if (given.cases.op.empty() && given.cases.suite.empty() && given.clear) return 0;
  const std::string share = conformance::share_folder();
  const auto catalog = conformance::all_records(share);
  const auto cases = select_cases(catalog, share, given.cases, "tune");
  std::vector<int> threads = given.threads;
  if (threads.empty()) threads.push_back(num_threads());
  const size_t before = choice_table().entries;
  Tuning tuning;
  for (const int n : threads) {
    set_num_threads(n);
    for (const bench::Case& c : cases) {
      try {
        bench::make_subject(c)->run(1);
        if (c.record == nullptr) continue;
        for (const Explanation& e : explain_case(c)) {
          if (e.by == "measured") print(e);
        }
      } catch (const Error& error) {
        if (given.cases.suite.empty()) throw;
        std::cerr << c.name << ": " << error.what() << "\n";
      }
    }
  }
  tuning.save();
  const ChoiceTable table = choice_table();
  std::cout << table.path << ": " << table.entries - before << " new kinds of calls measured, "
            << table.entries << " in total. MYTORCH_CHOICE=measured uses them.\n";
  return 0;
}

}  // namespace

Run add_tune(CLI::App& app) {
  auto given = std::make_shared<TuneArguments>();
  add_case_options(app, given->cases);
  app.add_option("--threads", given->threads,
                 "one or several numbers of threads (default: MYTORCH_NUM_THREADS)")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  app.add_flag("--clear", given->clear, "first delete all earlier measurements");
  return [given] { return tune_command(*given); };
}

Run add_explain(CLI::App& app) {
  auto given = std::make_shared<TuneArguments>();
  add_case_options(app, given->cases);
  app.add_option("--threads", given->threads, "number of threads (default: MYTORCH_NUM_THREADS)")
      ->expected(1)
      ->check(CLI::Range(1, 4096));
  return [given] { return explain_command(*given); };
}

}  // namespace mytorch::tools
