// Writes the Trace Event Format (Chrome's, which Perfetto reads): complete events "X" per thread,
// in microseconds; counters "C"; thread names "M".
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/profiler/profile.h"

namespace mytorch::profiler {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (code < 0x20) {
      absl::StrAppendFormat(&result, "\\u%04x", code);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string event_json(const Events& of, const ProfileEvent& event, uint64_t since) {
  const EventNames named = names_of(of, event);
  const double begin = 1e-3 * static_cast<double>(event.begin - since);
  std::string text =
      absl::StrFormat(R"({"ph":"X","pid":1,"tid":%d,"ts":%.3f,"dur":%.3f,"cat":"%s","name":%s)",
                      of.thread, begin, 1e-3 * static_cast<double>(event.end - event.begin),
                      event.op == nullptr ? "range" : "kernel", quoted(named.op));
  if (event.op != nullptr) {
    absl::StrAppend(&text, R"(,"args":{"operands":)", quoted(of.operands_text(event)),
                    R"(,"device":)", quoted(named.device), R"(,"backend":)", quoted(named.backend),
                    R"(,"kernel":)", quoted(named.kernel));
    if (event.stream != nullptr) {
      absl::StrAppendFormat(&text, R"(,"stream":"%p")", event.stream);
    }
    absl::StrAppend(&text, "}");
  }
  return text + "}";
}

}  // namespace

void Profile::save_trace(const std::string& path) {
  stop();
  const auto closed = [](std::FILE* file) { std::fclose(file); };
  std::unique_ptr<std::FILE, decltype(closed)> file(std::fopen(path.c_str(), "w"), closed);
  const auto cannot = [&](const char* what) {
    fail(ErrorCode::kIo, "[profiler] cannot ", what, " the trace ", path, ": ",
         std::strerror(errno));
  };
  if (file == nullptr) cannot("create");
  std::string separator = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  bool written = true;
  const auto put = [&](const std::string& line) {
    written = written && std::fputs(separator.c_str(), file.get()) >= 0 &&
              std::fputs(line.c_str(), file.get()) >= 0;
    separator = ",\n";
  };
  put(R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"mytorch"}})");
  for (const Events& of : state_->threads) {
    if (of.events.empty()) continue;
    put(absl::StrFormat(
        R"({"ph":"M","pid":1,"tid":%d,"name":"thread_name","args":{"name":"thread %d"}})",
        of.thread, of.thread));
    uint64_t memory = 0;
    for (const ProfileEvent& event : of.events) {
      put(event_json(of, event, state_->since));
      if (event.memory == memory) continue;
      memory = event.memory;
      put(absl::StrFormat(
          R"({"ph":"C","pid":1,"ts":%.3f,"name":"host memory, large blocks","args":{"bytes":%d}})",
          1e-3 * static_cast<double>(event.end - state_->since), memory));
    }
  }
  std::FILE* whole = file.get();
  written = written && std::fprintf(whole, "\n],\"otherData\":{\"dropped\":%llu}}\n",
                                    static_cast<unsigned long long>(state_->dropped())) > 0;
  if (!written || std::fflush(whole) != 0) cannot("write");
}

}  // namespace mytorch::profiler
