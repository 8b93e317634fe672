#include "bench/harness/report.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <set>
#include <sstream>
#include <thread>

#include "bench/harness/statistics.h"
#include "mytorch/error.h"
#include "mytorch/version.h"

namespace mytorch::bench {
namespace {

using nlohmann::ordered_json;

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}

// Returns three significant digits.
std::string figure(double value) {
  return fixed(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

std::string percent(double share) { return fixed(100 * share, share < 0.0995 ? 1 : 0) + " %"; }

constexpr int kName = 26, kBackend = 12, kNumber = 10;

// Returns a unique name of a row in the style of Google Benchmark.
std::string full_name(const Row& row) {
  return row.what.name + "/" + row.what.dtype + "/threads:" + std::to_string(row.threads) + "/" +
         row.cache + "/" + row.backend;
}

bool fits(const Row& row, const Other& other) {
  return other.name == row.what.name && (other.cache.empty() || other.cache == row.cache) &&
         (other.dtype.empty() || other.dtype == row.what.dtype) &&
         (other.threads == 0 || other.threads == row.threads);
}

// Returns the name without the suffixes of Google Benchmark.
std::string plain_name(std::string name) {
  for (const char* tail : {"_median", "/real_time", "/process_time"}) {
    if (name.ends_with(tail)) name.resize(name.size() - std::string(tail).size());
  }
  const size_t threads = name.rfind("/threads:");
  if (threads != std::string::npos && name.find('/', threads + 1) == std::string::npos) {
    name.resize(threads);
  }
  return name;
}

double unit_seconds(const std::string& unit) {
  if (unit == "ns") return 1e-9;
  if (unit == "us") return 1e-6;
  if (unit == "ms") return 1e-3;
  if (unit == "s") return 1;
  throw Error(ErrorCode::kValue, "[bench] unknown time_unit '" + unit + "'");
}

}  // namespace

std::string row_command(const Row& row) {
  return reproducer(row.what, row.threads, row.backend == "-" ? "" : row.backend) +
         (row.cache == "cold" ? " --cache cold" : "");
}

std::string duration_text(double seconds) {
  const double ns = seconds * 1e9;
  if (ns == 0) return "0 ns";
  if (ns < 999.5) return figure(ns) + " ns";
  if (ns < 999.5e3) return figure(ns / 1e3) + " us";
  if (ns < 999.5e6) return figure(ns / 1e6) + " ms";
  return figure(ns / 1e9) + " s";
}

void Table::machine(const Machine& m, int threads) {
  out_ << "machine, " << threads << (threads == 1 ? " thread" : " threads") << ": copy "
       << figure(m.copy * 1e-9) << " GB/s, read " << figure(m.read * 1e-9) << " GB/s, multiply-add "
       << figure(m.multiply_add * 1e-9) << " GFLOP/s (float32)\n";
}

void Table::device(const Machine& m, Device device) {
  out_ << device.str() << ": copy " << figure(m.copy * 1e-9) << " GB/s, products "
       << figure(m.multiply_add * 1e-12) << " TFLOP/s (bfloat16)\n";
}

void Table::row(const Row& row) {
  const auto number = [&](const std::string& text) { out_ << std::setw(kNumber) << text; };
  if (!has_head_) {
    out_ << std::left << std::setw(kName) << "case" << std::setw(kBackend) << "backend"
         << std::right << std::setw(6) << "cache";
    for (const char* head : {"median", "+-", "GB/s", "GFLOP/s"}) number(head);
    out_ << std::setw(20) << "of limit";
    for (const char* head : {"frontend", "selection", "kernel"}) number(head);
    out_ << "\n";
    has_head_ = true;
  }
  const double seconds = row.time.median;
  out_ << std::left << std::setw(kName) << row.what.name;
  if (static_cast<int>(row.what.name.size()) >= kName) out_ << "\n" << std::setw(kName) << "";
  out_ << std::setw(kBackend) << row.backend << std::right << std::setw(6) << row.cache;
  number(duration_text(seconds));
  number(percent(row.time.mad / seconds));
  number(row.bytes > 0 ? figure(row.bytes / seconds * 1e-9) : "-");
  number(row.flops > 0 ? figure(row.flops / seconds * 1e-9) : "-");
  out_ << std::setw(20) << (row.limit.empty() ? "-" : percent(row.share()) + " " + row.limit);
  if (row.split.has_value()) {
    for (const double part : {row.split->frontend, row.split->selection, row.split->kernel}) {
      number(duration_text(part));
    }
  } else {
    for (int i = 0; i < 3; ++i) number("-");
  }
  out_ << "\n    " << row_command(row) << (row.kernels.empty() ? "" : "  # " + row.kernels)
       << std::endl;
}

ordered_json to_json(const std::vector<Row>& rows, const Machine& machine, int threads) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  char date[64] = "";
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(date, sizeof(date), "%FT%T%z", localtime_r(&now, &local));
  ordered_json json;
  json["context"] = {{"date", date},
                     {"host_name", host},
                     {"executable", "mytorch bench"},
                     {"num_cpus", std::thread::hardware_concurrency()},
                     {"library_version", MYTORCH_VERSION_STRING},
#ifdef NDEBUG
                     {"library_build_type", "release"},
#else
                     {"library_build_type", "debug"},
#endif
                     {"threads", threads},
                     {"copy_bytes_per_second", machine.copy},
                     {"read_bytes_per_second", machine.read},
                     {"multiply_adds_flops", machine.multiply_add}};
  json["benchmarks"] = ordered_json::array();
  for (const Row& row : rows) {
    const double ns = row.time.median * 1e9;
    ordered_json entry = {{"name", full_name(row)},
                          {"run_name", full_name(row)},
                          {"run_type", "iteration"},
                          {"repetitions", 1},
                          {"repetition_index", 0},
                          {"threads", row.threads},
                          {"iterations", row.time.samples},
                          {"real_time", ns},
                          {"cpu_time", ns},
                          {"time_unit", "ns"},
                          {"suite", row.what.suite},
                          {"case", row.what.name},
                          {"backend", row.backend},
                          {"cache", row.cache},
                          {"dtype", row.what.dtype},
                          {"device", row.what.device.str()},
                          {"deviation", row.time.mad * 1e9},
                          {"least", row.time.least * 1e9},
                          {"outliers", row.time.outliers}};
    if (row.bytes > 0) entry["bytes_per_second"] = row.bytes / row.time.median;
    if (row.flops > 0) entry["flops"] = row.flops / row.time.median;
    if (!row.limit.empty()) {
      entry["limit"] = row.limit;
      entry["share"] = row.share();
    }
    if (row.split.has_value()) {
      entry["frontend"] = row.split->frontend * 1e9;
      entry["selection"] = row.split->selection * 1e9;
      entry["kernel"] = row.split->kernel * 1e9;
    }
    if (!row.kernels.empty()) entry["kernels"] = row.kernels;
    json["benchmarks"].push_back(std::move(entry));
  }
  return json;
}

void write_json(const ordered_json& json, const std::string& path) {
  std::ofstream file(path);
  file << json.dump(1) << "\n";
  if (!file.flush()) throw Error(ErrorCode::kIo, "[bench] cannot write " + path);
}

std::vector<Other> read_results(const std::string& path, const std::string& option) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kIo, "[bench] " + option + ": cannot read " + path);
  struct Found {
    Other other;
    std::vector<double> times;
    bool aggregate = false;
  };
  std::map<std::string, Found> found;  // by full name
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    const std::string program = json.at("context").value("label", "");
    for (const auto& entry : json.at("benchmarks")) {
      if (entry.value("error_occurred", false)) continue;
      const bool aggregate = entry.value("run_type", "iteration") == "aggregate";
      if (aggregate && entry.value("aggregate_name", "") != "median") continue;
      const std::string name = entry.value("run_name", entry.at("name").get<std::string>());
      Found& one = found[name];
      if (one.aggregate) continue;
      if (aggregate) one.times.clear();
      one.aggregate = aggregate;
      one.times.push_back(entry.at("real_time").get<double>() *
                          unit_seconds(entry.value("time_unit", "ns")));
      const bool is_ours = entry.contains("case");
      one.other = {is_ours ? entry.at("case").get<std::string>() : plain_name(name),
                   entry.value("backend", program),
                   entry.value("cache", ""),
                   entry.value("dtype", ""),
                   is_ours ? entry.value("threads", 0) : 0,
                   0,
                   1e-9 * entry.value("deviation", 0.0),
                   entry.value("device", "")};
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kValue,
                "[bench] " + option + ": " + path +
                    " is not in Google Benchmark's JSON format: " + error.what());
  }
  std::vector<Other> others;
  for (auto& [name, one] : found) {
    one.other.seconds = median(one.times);
    others.push_back(one.other);
  }
  return others;
}

void print_comparison(const std::vector<Row>& rows, const std::vector<Other>& others,
                      std::ostream& out) {
  out << "\n"
      << std::left << std::setw(kName) << "case" << std::setw(kBackend) << "backend" << std::right
      << std::setw(6) << "cache" << std::setw(kNumber) << "ours" << std::setw(kNumber) << "theirs"
      << std::setw(kNumber) << "faster"
      << "  than\n";
  struct Best {
    double ours = 0;
    double theirs = 0;
  };
  std::map<std::string, Best> best;  // by label, case and state of the caches
  std::set<std::string> alone;
  for (const Row& row : rows) {
    bool any = false;
    for (const Other& other : others) {
      if (!fits(row, other) || other.seconds <= 0) continue;
      any = true;
      out << std::left << std::setw(kName) << row.what.name << std::setw(kBackend) << row.backend
          << std::right << std::setw(6) << row.cache << std::setw(kNumber)
          << duration_text(row.time.median) << std::setw(kNumber) << duration_text(other.seconds)
          << std::setw(kNumber) << fixed(other.seconds / row.time.median, 2) + "x"
          << "  " << (other.label.empty() ? "the file's" : other.label) << "\n";
      Best& b = best[other.label + "\n" + row.what.name + "\n" + row.cache + row.what.dtype];
      if (b.ours == 0 || row.time.median < b.ours) b = {row.time.median, other.seconds};
    }
    if (!any) alone.insert(row.what.name);
  }
  std::map<std::string, std::vector<double>> ratios;
  for (const auto& [key, b] : best) {
    ratios[key.substr(0, key.find('\n'))].push_back(std::log(b.theirs / b.ours));
  }
  for (const auto& [label, logs] : ratios) {
    double sum = 0;
    for (const double value : logs) sum += value;
    out << "geometric mean of the fastest of each case: "
        << fixed(std::exp(sum / static_cast<double>(logs.size())), 2) << "x over " << logs.size()
        << (logs.size() == 1 ? " case" : " cases") << ", than "
        << (label.empty() ? "the file's" : label) << "\n";
  }
  if (!alone.empty()) {
    out << "not in the file:";
    for (const std::string& name : alone) out << " " << name;
    out << "\n";
  }
}

}  // namespace mytorch::bench
