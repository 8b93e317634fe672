// Per-thread switches for recording operations for differentiation.
#pragma once

namespace mytorch {

bool grad_enabled();
void set_grad_enabled(bool enabled);

// Disables gradient recording in its scope.
class NoGradGuard {
 public:
  NoGradGuard() : saved_(grad_enabled()) { set_grad_enabled(false); }
  ~NoGradGuard() { set_grad_enabled(saved_); }
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool saved_;
};

// Enables gradient recording in its scope, even inside a NoGradGuard.
class EnableGradGuard {
 public:
  EnableGradGuard() : saved_(grad_enabled()) { set_grad_enabled(true); }
  ~EnableGradGuard() { set_grad_enabled(saved_); }
  EnableGradGuard(const EnableGradGuard&) = delete;
  EnableGradGuard& operator=(const EnableGradGuard&) = delete;

 private:
  bool saved_;
};

// Enables or disables gradient recording in its scope.
class AutoGradMode {
 public:
  explicit AutoGradMode(bool enabled) : saved_(grad_enabled()) { set_grad_enabled(enabled); }
  ~AutoGradMode() { set_grad_enabled(saved_); }
  AutoGradMode(const AutoGradMode&) = delete;
  AutoGradMode& operator=(const AutoGradMode&) = delete;

 private:
  bool saved_;
};

// libtorch's name of grad_enabled and set_grad_enabled.
struct GradMode {
  static bool is_enabled() { return grad_enabled(); }
  static void set_enabled(bool enabled) { set_grad_enabled(enabled); }
};

// Disables gradient recording in its scope. In addition, tensors created in the scope can never
// take part in differentiation: their views are not tracked and their writes are not counted, which
// makes operations cheaper than under NoGradGuard. InferenceMode(false) enables recording in its
// scope, even inside an InferenceMode.
class InferenceMode {
 public:
  explicit InferenceMode(bool enabled = true);
  ~InferenceMode();
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;

 private:
  bool saved_grad_;
  bool saved_inference_;
};

bool inference_mode_enabled();

}  // namespace mytorch
