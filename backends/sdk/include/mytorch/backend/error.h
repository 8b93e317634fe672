// Exceptions inside a backend, and their conversion to statuses at the C boundary.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "mytorch/abi.h"

namespace mytorch::sdk {
inline namespace v1 {

// The error of a kernel. `status` is one of MT_ERROR_*; the message begins with the operator:
// "[gather] ...".
class Error : public std::exception {
 public:
  Error(int status, std::string message) : status_(status), message_(std::move(message)) {}

  const char* what() const noexcept override { return message_.c_str(); }
  int status() const noexcept { return status_; }

 private:
  int status_;
  std::string message_;
};

// Thrown to decline a call; the host then tries the next kernel. A kernel may throw it only before
// it has written anything.
struct Declined {};

// Runs f() and returns MT_OK. If f throws, calls `report(status, message)` and returns the status
// of the exception.
template <class F, class Report>
int status_of(F&& f, Report&& report) noexcept {
  try {
    f();
    return MT_OK;
  } catch (const Declined&) {
    return MT_DECLINED;
  } catch (const Error& error) {
    report(error.status(), error.what());
    return error.status();
  } catch (const std::bad_alloc&) {
    report(MT_ERROR_OUT_OF_MEMORY, "out of memory inside a kernel");
    return MT_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    report(MT_ERROR_INTERNAL, error.what());
    return MT_ERROR_INTERNAL;
  } catch (...) {
    report(MT_ERROR_INTERNAL, "a kernel threw something that is not a std::exception");
    return MT_ERROR_INTERNAL;
  }
}

// Like status_of, but passes the message to the context.
template <class F>
int guarded(mt_ctx* ctx, F&& f) noexcept {
  return status_of(std::forward<F>(f), [ctx](int status, const char* message) {
    if (ctx != nullptr && ctx->set_error != nullptr) ctx->set_error(ctx, status, message);
  });
}

}  // namespace v1
}  // namespace mytorch::sdk
