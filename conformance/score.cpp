#include "conformance/score.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace mytorch::conformance {
namespace {

std::string routes_text(const Score& score) {
  std::string text;
  for (const Route route :
       {Route::kNative, Route::kView, Route::kComposite, Route::kFallback, Route::kNone}) {
    const int n =
        score.routes[static_cast<int>(route)] - (route == Route::kNone ? score.missing : 0);
    if (n == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(n) + " " +
            (route == Route::kNone ? "refused" : route_name(route));
  }
  if (score.missing > 0) {
    text += (text.empty() ? "" : ", ") + std::to_string(score.missing) + " missing";
  }
  return text;
}

Json routes_json(const Counts& counts) {
  Json json;
  for (int i = 0; i < 5; ++i) json[route_name(static_cast<Route>(i))] = counts.routes[i];
  return json;
}

std::string number_text(double value) {
  std::ostringstream text;
  text << std::setprecision(2) << value;
  return text.str();
}

}  // namespace

double Summary::native_share() const {
  const int fallback = routes[static_cast<int>(Route::kFallback)];
  return ops == 0 ? 0 : static_cast<double>(ops - fallback) / ops;
}

Summary summary(const Report& report) {
  Summary s;
  for (const auto& [op, score] : report.scores) {
    ++s.ops;
    s.passed += score.failed == 0 ? 1 : 0;
    ++s.routes[static_cast<int>(score.missing > 0 ? Route::kFallback : score.route())];
  }
  return s;
}

void print_table(const Report& report, const Options& options, std::ostream& out) {
  size_t width = 8;
  for (const auto& [op, score] : report.scores) width = std::max(width, op.size());
  const auto column = static_cast<int>(width + 2);
  out << std::left << std::setw(column) << "operator" << std::setw(11) << "route" << std::setw(6)
      << "" << std::setw(9) << "worst"
      << "cases\n";
  for (const auto& [op, score] : report.scores) {
    out << std::setw(column) << op << std::setw(11) << route_name(score.route()) << std::setw(6)
        << (score.failed == 0 ? "pass" : "FAIL") << std::setw(9) << number_text(score.worst)
        << routes_text(score) << "\n";
    if (score.failed != 0) {
      out << "    " << score.failed
          << " failed: " << reproducer(options, op, score.failures.front().number) << "\n";
    }
  }
  int in_regions = 0, not_in_graph = 0;
  std::string refused;  // the operators of these cases
  for (const auto& [op, score] : report.scores) {
    in_regions += score.in_regions;
    not_in_graph += score.not_in_graph;
    if (score.not_in_graph == 0) continue;
    refused += (refused.empty() ? "" : ", ") + op + " (" + std::to_string(score.not_in_graph) + ")";
  }
  const Summary s = summary(report);
  out << "\nworst: the largest error of an element as a fraction of the allowed error.\n";
  out << report.cases << " cases, " << std::max(0, report.cases - report.failed) << " passed, "
      << report.failed << " failed (seed " << options.seed << ")\n";
  if (in_regions > 0) out << in_regions << " cases ran in regions of compiled functions, too\n";
  if (not_in_graph > 0) {
    out << not_in_graph
        << " cases are in no compiled function, because graphs cannot hold them: " << refused
        << "\n";
  }
  if (!options.stress && !options.edges) {
    out << "not checked: large odd sizes and calls from several threads, which take minutes: add "
           "--stress\n";
  }
  out << "score: " << s.passed << " of " << s.ops << " operators pass; "
      << s.routes[static_cast<int>(Route::kNative)] << " native, "
      << s.routes[static_cast<int>(Route::kComposite)] << " composite, "
      << s.routes[static_cast<int>(Route::kView)] << " views, "
      << s.routes[static_cast<int>(Route::kFallback)] << " need the fallback ("
      << std::lround(1000 * s.native_share()) / 10.0 << " % do not)" << std::endl;
}

Json to_json(const std::vector<ContractResult>& contract, const Report& report,
             const Options& options) {
  Json json = {{"backend", options.backend}, {"device", options.device}, {"seed", options.seed}};
  json["contract"] = Json::array();
  for (const ContractResult& r : contract) {
    json["contract"].push_back({{"test", r.name}, {"passed", r.passed()}, {"what", r.what}});
  }
  json["ops"] = Json::array();
  for (const auto& [op, score] : report.scores) {
    Json row = {{"op", op},
                {"route", route_name(score.route())},
                {"cases", score.cases},
                {"failed", score.failed},
                {"in_regions", score.in_regions},
                {"not_in_graph", score.not_in_graph},
                {"worst", std::min(score.worst, 1e300)}};
    row["routes"] = routes_json(score);
    row["types"] = Json::object();
    for (const auto& [type, counts] : score.types) {
      row["types"][type] = {{"cases", counts.cases},
                            {"failed", counts.failed},
                            {"refused", counts.refused},
                            {"worst", std::min(counts.worst, 1e300)},
                            {"routes", routes_json(counts)}};
    }
    row["failures"] = Json::array();
    for (const Failure& f : score.failures) {
      row["failures"].push_back({{"case", f.number},
                                 {"check", f.check},
                                 {"arguments", f.arguments},
                                 {"what", f.what},
                                 {"likely", likely_cause(f)},
                                 {"reproducer", reproducer(options, f.op, f.number)}});
    }
    json["ops"].push_back(row);
  }
  const Summary s = summary(report);
  json["score"] = {{"operators", s.ops},
                   {"passed", s.passed},
                   {"cases", report.cases},
                   {"failed", report.failed},
                   {"native", s.routes[static_cast<int>(Route::kNative)]},
                   {"composite", s.routes[static_cast<int>(Route::kComposite)]},
                   {"views", s.routes[static_cast<int>(Route::kView)]},
                   {"fallback", s.routes[static_cast<int>(Route::kFallback)]}};
  return json;
}

}  // namespace mytorch::conformance
