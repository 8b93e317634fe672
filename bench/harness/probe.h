// Watching the kernels that a call leads to: which they are, how long they run by themselves, and
// how long the call takes without them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/table/op.h"

namespace mytorch::bench {

// One kernel that ran.
struct KernelRun {
  const OpEntry* entry = nullptr;
  std::string backend;
  std::string kernel;
  double flops = 0;       // kernel_flops()
  bool has_cost = false;  // its record says them
};

// Puts itself around the kernels of operators, on one device type. Only calls of one thread at a
// time may be made while a probe watches.
class Probe {
 public:
  enum class Mode {
    kTrace,       // notes each kernel that ran
    kTime,        // adds up the time of each kernel, run again and again where it is short
    kSkip,        // does not run the kernels: what remains is the frontend and the selection
    kSkipDirect,  // the same without selection: the op's slot leads straight to the first kernel
  };

  // Watches the ops of `entries`, or all where it is empty.
  Probe(const std::vector<conformance::OpRecord>& catalog, int device_slot,
        const std::vector<const OpEntry*>& entries);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Watches from begin to end.
  void begin(Mode mode);
  void end();

  // Between begin and end: whether no op has anything to choose.
  bool all_direct() const;

  // Of kTrace: since begin.
  const std::vector<KernelRun>& trace() const { return trace_; }
  // Of kTime: seconds in kernels since begin, one run of each counted for each call.
  double seconds() const { return seconds_; }

 private:
  struct Watched;
  struct Wrapper;
  static int run(void* self, mt_ctx* ctx, const void* args);
  static int run_compiled(void* self, mt_ctx* ctx, const void* args);
  static const char* supports(void* self, const void* args);
  void install(Watched& watched, bool wrapped);

  std::map<std::string, const conformance::OpRecord*> records_;
  int slot_;
  Mode mode_ = Mode::kTrace;
  bool watching_ = false;
  std::vector<KernelRun> trace_;
  double seconds_ = 0;
  std::vector<std::unique_ptr<Watched>> watched_;
};

}  // namespace mytorch::bench
