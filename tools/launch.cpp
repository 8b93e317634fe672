// `mytorch launch`: starts the ranks of a program on this machine.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "core/runtime/device_registry.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

struct LaunchOptions {
  int ranks = 0;
  enum class Mpi { kWithoutGpu, kYes, kNo } mpi = Mpi::kWithoutGpu;
  double patience = 10;
  int restarts = 0;
  int min_ranks = 0;  // 0: as many as there were
  std::vector<std::string> command;
};

constexpr const char* kMpirun = "mpirun";
constexpr const char* kInstall =
    "install Open MPI (the package openmpi-bin of Debian and Ubuntu, openmpi elsewhere) or MPICH";

// The kernel does not give a port that was free a moment ago to anybody else soon.
std::string free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw Error(ErrorCode::kIo, std::string("[launch] no free port: ") + std::strerror(errno));
  }
  ::close(fd);
  return std::to_string(ntohs(address.sin_port));
}

[[noreturn]] void execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  std::cerr << "mytorch launch: cannot run " << command[0] << ": " << std::strerror(errno);
  if (command[0] == kMpirun) std::cerr << ": " << kInstall;
  std::cerr << "\n";
  ::_exit(127);
}

std::vector<std::string> mpi_command(const LaunchOptions& options, int ranks) {
  std::vector<std::string> command = {kMpirun, "-n", std::to_string(ranks)};
  command.insert(command.end(), options.command.begin(), options.command.end());
  return command;
}

struct Child {
  pid_t pid;
  std::string name;
  bool runs = true;
};

// Whether the processes that a process has started have all ended.
bool children_ended(pid_t parent) {
  bool ended = true;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    if (std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0])) == 0)
      continue;
    // The fields after the name of the program, which may have spaces: state and parent.
    std::ifstream in(entry.path() / "stat");
    std::string text;
    std::getline(in, text);
    char state = 0;
    int of = 0;
    const size_t name = text.rfind(')');
    if (name == std::string::npos ||
        std::sscanf(text.c_str() + name, ") %c %d", &state, &of) != 2) {
      continue;
    }
    if (of == parent && state != 'Z') ended = false;
  }
  return ended;
}

// Starts the ranks once, or an mpirun that does, and waits for their ends.
class Launch {
 public:
  Launch(const LaunchOptions& options, int ranks, bool mpi)
      : options_(options), ranks_(ranks), mpi_(mpi) {
    sigemptyset(&signals_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
      sigaddset(&signals_, signal);
    }
  }

  // Returns 0, or the status of the first process that failed.
  int run() {
    sigset_t before;
    ::sigprocmask(SIG_BLOCK, &signals_, &before);
    const std::string port = free_port();
    const std::string key =
        std::to_string(std::random_device()()) + std::to_string(std::random_device()());
    for (int rank = 0; rank < (mpi_ ? 1 : ranks_); ++rank) {
      const std::string name = mpi_ ? kMpirun : "rank " + std::to_string(rank);
      const pid_t launcher = ::getpid();
      const pid_t pid = ::fork();
      if (pid < 0) {
        std::cerr << "mytorch launch: cannot start " << name << ": " << std::strerror(errno)
                  << "\n";
        status_ = 1;
        stop();
        break;
      }
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (::getppid() != launcher) ::_exit(1);  // it died before
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        if (mpi_) execute(mpi_command(options_, ranks_));
        const auto set = [](const char* variable, const std::string& value) {
          ::setenv(variable, value.c_str(), 1);
        };
        set("RANK", std::to_string(rank));
        set("LOCAL_RANK", std::to_string(rank));
        set("WORLD_SIZE", std::to_string(ranks_));
        set("MASTER_ADDR", "127.0.0.1");
        set("MASTER_PORT", port);
        set("MYTORCH_STORE_KEY", key);
        execute(options_.command);
      }
      children_.push_back({pid, name});
    }
    while (collect() > 0) wait_for_signal();
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return status_;
  }

  // Whether the launcher was told to end.
  bool interrupted() const { return interrupted_; }

 private:
  // Returns how many ranks still run.
  int collect() {
    int running = 0;
    for (Child& child : children_) {
      int status = 0;
      if (child.runs && ::waitpid(child.pid, &status, WNOHANG) == child.pid) {
        child.runs = false;
        ended(child, status);
      }
      running += child.runs ? 1 : 0;
    }
    return running;
  }

  void ended(const Child& child, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    // A signal such as SIGHUP that the launcher passed on is no failure to start again after.
    if (passed_ != 0 && (WIFSIGNALED(status) ? WTERMSIG(status) == passed_
                                             : WEXITSTATUS(status) == 128 + passed_)) {
      interrupted_ = true;
    }
    // Those that end because they were told to say nothing new.
    if (WIFSIGNALED(status) && told_ == WTERMSIG(status)) return;
    std::cerr << "mytorch launch: " << child.name << " (process " << child.pid << ", "
              << options_.command[0] << ") ";
    if (WIFSIGNALED(status)) {
      std::cerr << "was killed by signal " << WTERMSIG(status) << " ("
                << ::strsignal(WTERMSIG(status)) << ")";
    } else {
      std::cerr << "exited with status " << WEXITSTATUS(status);
    }
    std::cerr << (told_ == 0 && !mpi_ ? ": stopping the others\n" : "\n");
    if (status_ == 0) status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    stop();
  }

  void tell(int signal) {
    for (const Child& child : children_) {
      if (child.runs) ::kill(child.pid, signal);
    }
  }

  void stop() {
    if (told_ != 0) return;
    told_ = SIGTERM;
    tell(SIGTERM);
    left_ = options_.patience;
  }

  void wait_for_signal() {
    const timespec tick{0, 100000000};
    const int signal = ::sigtimedwait(&signals_, nullptr, &tick);
    if (signal < 0 && errno == EAGAIN) {
      if (told_ == 0 && mpi_) watch_mpi();
      if (told_ == SIGTERM) left_ -= 0.1;
      if (told_ == SIGTERM && left_ <= 0) {
        told_ = SIGKILL;
        tell(SIGKILL);
      }
    }
    if (signal <= 0 || signal == SIGCHLD) return;
    tell(signal);
    passed_ = signal;
    if (signal == SIGTERM || signal == SIGINT) {
      interrupted_ = true;
      if (told_ == 0) status_ = 128 + signal;
      if (signal == SIGTERM && told_ != SIGTERM) left_ = options_.patience;
      told_ = signal;
    }
  }

  // Open MPI's launcher at times does not end after ranks that it aborts.
  void watch_mpi() {
    if (!children_ended(children_[0].pid)) {
      has_ranks_ = true;
      left_ = std::max(options_.patience, 10.0);  // it also winds up after success
    } else if (has_ranks_ && (left_ -= 0.1) <= 0) {
      std::cerr << "mytorch launch: all ranks have ended, and " << kMpirun << " has not\n";
      status_ = 128 + SIGKILL;
      told_ = SIGKILL;
      tell(SIGKILL);
    }
  }

  const LaunchOptions& options_;
  const int ranks_;
  const bool mpi_;
  sigset_t signals_;
  std::vector<Child> children_;
  int status_ = 0;
  int told_ = 0;  // the signal by which the ranks were told to end
  double left_ = 0;
  int passed_ = 0;  // the last signal that came from outside
  bool interrupted_ = false;
  bool has_ranks_ = false;  // whether mpirun has started some
};

// Whether there are devices besides the CPU. A process of its own asks, because backends start
// threads, which would take the signals that are meant for the ranks.
bool has_devices() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);  // the ranks say it again
    bool found = false;
    for (const BackendInfo& backend : backend_infos()) {
      if (!backend.error.empty() || backend.device_type == "cpu") continue;
      found = found || device_count(device_type_from_name(backend.device_type)) > 0;
    }
    ::_exit(found ? 0 : 1);
  }
  int status = 1;
  return pid > 0 && ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

bool is_installed(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

int run_launch(const LaunchOptions& options) {
  using enum LaunchOptions::Mpi;
  bool mpi = options.mpi == kYes;
  if (options.mpi == kWithoutGpu && options.ranks > 1 && !has_devices()) {
    if (!is_installed(kMpirun)) {
      std::cerr << "mytorch launch: there is no GPU, and no " << kMpirun
                << ", which connects CPUs: " << kInstall
                << "; --no-mpi starts the ranks all the same\n";
      return 127;
    }
    std::cerr << "mytorch launch: there is no GPU, so " << kMpirun
              << " connects the ranks (--no-mpi starts them without it)\n";
    mpi = true;
  }
  // More ranks than processors are fine: what they wait with gives way.
  if (mpi) ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
  if (mpi && options.restarts == 0) execute(mpi_command(options, options.ranks));
  const int least = options.min_ranks == 0 ? options.ranks : options.min_ranks;
  if (least > options.ranks) {
    std::cerr << "mytorch launch: --min-ranks is " << least << ", more than --ranks, "
              << options.ranks << "\n";
    return 1;
  }
  int ranks = options.ranks;
  for (int restart = 0;; ++restart) {
    ::setenv("MYTORCH_RESTARTS", std::to_string(restart).c_str(), 1);
    Launch launch(options, ranks, mpi);
    const int status = launch.run();
    if (status == 0 || launch.interrupted() || restart == options.restarts) return status;
    // What the failed rank used, such as a device, may be out of order.
    ranks = std::max(least, ranks - 1);
    std::cerr << "mytorch launch: restart " << restart + 1 << " of " << options.restarts
              << ", with " << ranks << " rank" << (ranks == 1 ? "" : "s") << "\n";
  }
}

}  // namespace

Run add_launch(CLI::App& app) {
  auto options = std::make_shared<LaunchOptions>();
  app.add_option("--ranks", options->ranks, "Number of ranks")
      ->required()
      ->check(CLI::Range(1, 65536));
  const auto set = [options](LaunchOptions::Mpi mpi) {
    return [options, mpi](int64_t) { options->mpi = mpi; };
  };
  app.add_flag("--mpi", set(LaunchOptions::Mpi::kYes),
               "Start them by MPI's mpirun, which connects CPUs: the default without a GPU");
  app.add_flag("--no-mpi", set(LaunchOptions::Mpi::kNo), "Start them without it in any case")
      ->excludes("--mpi");
  app.add_option("--patience", options->patience,
                 "Seconds that the others have to end after one has failed")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--restarts", options->restarts,
                 "How many times all ranks are started again after one has failed")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--min-ranks", options->min_ranks,
                 "Start one rank less after each failure, but at least so many; otherwise as many "
                 "as before")
      ->check(CLI::Range(1, 65536));
  app.add_option("command", options->command, "The program and its arguments")->required();
  app.prefix_command(false);
  app.positionals_at_end();
  return [options] { return run_launch(*options); };
}

}  // namespace mytorch::tools
