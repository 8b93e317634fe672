#include "conformance/isolate.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <sstream>

#include "mytorch/error.h"

namespace mytorch::conformance {
namespace {

// Splits the data of a pipe into lines.
class Lines {
 public:
  explicit Lines(std::function<void(const std::string&)> use) : use_(std::move(use)) {}
  // Returns false at the end of the stream.
  bool read_from(int fd) {
    char buffer[1 << 16];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    rest_.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = rest_.find('\n')) != std::string::npos;) {
      const std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      use_(line);
    }
    return true;
  }

 private:
  std::function<void(const std::string&)> use_;
  std::string rest_;
};

void write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n > 0) at += static_cast<size_t>(n);
    if (n < 0 && errno != EINTR) _exit(3);
  }
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return std::string("crashed: ") + strsignal(WTERMSIG(status));
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

[[noreturn]] void be_child(const std::function<void(const Tell&)>& work, pid_t parent, int lines,
                           int errors) {
#ifdef __linux__
  // A killed parent, at the time limit of a test, leaves no child behind.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
#endif
  dup2(errors, STDERR_FILENO);
  int status = 0;
  try {
    work([lines](const std::string& line) { write_all(lines, line + "\n"); });
  } catch (const std::exception& error) {
    std::cerr << "mytorch: " << error.what() << "\n";
    status = 1;
  }
  std::cout.flush();
  std::cerr.flush();
  _exit(status);  // runs no destructors, because threads of the backend may still run
}

Json to_json(const Outcome& o) {
  Json failures = Json::array();
  for (const Failure& f : o.failures) failures.push_back({f.check, f.arguments, f.what});
  // JSON has no infinity.
  return {{"number", o.number},
          {"refused", o.refused},
          {"missing", o.missing},
          {"dtype", o.dtype},
          {"in_regions", o.in_regions},
          {"not_in_graph", o.not_in_graph},
          {"route", static_cast<int>(o.route)},
          {"worst", std::min(o.worst, 1e300)},
          {"failures", failures}};
}

Outcome outcome_of(const std::string& op, const Json& json) {
  Outcome o{op, json.at("number"), json.at("refused"), static_cast<Route>(json.at("route")),
            json.at("worst")};
  o.missing = json.at("missing");
  o.dtype = json.at("dtype");
  o.in_regions = json.at("in_regions");
  o.not_in_graph = json.at("not_in_graph");
  for (const Json& f : json.at("failures")) {
    o.failures.push_back({op, o.number, f.at(0), f.at(1), f.at(2), o.route});
  }
  return o;
}

}  // namespace

// The seconds that a child may take before its first line.
constexpr double kLoading = 60;

Ended run_in_child(const std::function<void(const Tell& tell)>& work,
                   const std::function<void(const std::string& line)>& line, double seconds) {
  int told[2];
  int errors[2];
  if (pipe2(told, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0) {
    throw Error(ErrorCode::kIo,
                std::string("[check] cannot create a pipe: ") + std::strerror(errno));
  }
  std::cout.flush();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    throw Error(ErrorCode::kIo,
                std::string("[check] cannot create a process: ") + std::strerror(errno));
  }
  if (child == 0) {
    close(told[0]);
    close(errors[0]);
    be_child(work, parent, told[1], errors[1]);
  }
  close(told[1]);
  close(errors[1]);
  Lines lines(line);
  Lines said([](const std::string& text) {
    if (text.find(" runs on the CPU for ") == std::string::npos) std::cerr << text << "\n";
  });
  bool begun = false;  // loading a backend may take longer than a case
  pollfd fds[2] = {{told[0], POLLIN, 0}, {errors[0], POLLIN, 0}};
  Ended ended;
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const int ready =
        poll(fds, 2, static_cast<int>(1000 * (begun ? seconds : std::max(seconds, kLoading))));
    begun = begun || (ready > 0 && fds[0].revents != 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      std::ostringstream how;
      how << "did not end within " << (begun ? seconds : std::max(seconds, kLoading)) << " s";
      ended.how = how.str();
      kill(child, SIGKILL);
      break;
    }
    for (pollfd& fd : fds) {
      if (fd.fd >= 0 && fd.revents != 0 && !(fd.fd == told[0] ? lines : said).read_from(fd.fd)) {
        fd.fd = -1;
      }
    }
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  close(told[0]);
  close(errors[0]);
  ended.well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!ended.well && ended.how.empty()) ended.how = how_it_ended(status);
  return ended;
}

Report check_in_children(const std::vector<OpRecord>& catalog, const Options& options,
                         const std::function<void()>& prepare, double seconds, std::ostream& out) {
  Report report;
  Options here = options;
  bool finished = false;
  std::map<std::string, int> ends;  // number of ended processes, by operator
  while (!finished) {
    std::string op;
    int number = -1;
    const auto work = [&](const Tell& tell) {
      prepare();
      Options there = here;
      there.begins = [&](const std::string& name, int n) {
        tell("begin " + std::to_string(n) + " " + name);
      };
      there.ended = [&](const Outcome& outcome) {
        tell("end " + outcome.op + " " +
             to_json(outcome).dump(-1, ' ', false, Json::error_handler_t::replace));
      };
      std::ostream nowhere(nullptr);
      check(catalog, there, nowhere);
      tell("finished");
    };
    const auto add = [&](const Outcome& outcome) {
      report.scores[outcome.op].add(outcome);
      for (const Failure& f : outcome.failures) {
        print_failure(f, reproducer(options, f.op, f.number), out);
        report.failures.push_back(f);
      }
    };
    const Ended ended = run_in_child(
        work,
        [&](const std::string& line) {
          std::istringstream words(line);
          std::string kind;
          words >> kind;
          if (kind == "begin") {
            words >> number >> op;
          } else if (kind == "end") {
            std::string name;
            words >> name;
            std::string rest;
            std::getline(words, rest);
            add(outcome_of(name, Json::parse(rest)));
          } else {
            finished = finished || kind == "finished";
          }
        },
        seconds);
    if (finished) break;
    if (op.empty() || (op == here.after_op && number == here.after_number)) {
      throw Error(ErrorCode::kInternal,
                  "[check] the process " + ended.how + " before the first case");
    }
    // The process ended during this case. Its arguments are not known here.
    constexpr int kEnough = 3;
    const bool gives_up = ++ends[op] == kEnough;
    const std::string skipped = gives_up ? "; the operator's remaining cases are skipped" : "";
    const Failure failure{op, number, "process", "", "the process " + ended.how + skipped};
    add({op, number, false, Route::kNone, 0, {failure}});
    here.after_op = op;
    here.after_number = gives_up ? std::numeric_limits<int>::max() : number;
  }
  for (const auto& [name, score] : report.scores) {
    report.cases += score.cases;
    report.failed += score.failed;
    report.missing += score.missing;
  }
  return report;
}

}  // namespace mytorch::conformance
