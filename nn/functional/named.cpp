#include "nn/functional/named.h"

#include <exception>
#include <string>

#include "core/types/errors.h"

namespace mytorch::nn {

void rethrow_as(const char* op) {
  try {
    throw;
  } catch (const Error& error) {
    std::string text = error.what();
    const size_t end = text.find("] ");
    if (!text.empty() && text[0] == '[' && end != std::string::npos) text.erase(0, end + 2);
    throw Error(error.code(), absl::StrCat("[", op, "] ", text));
  } catch (const std::exception&) {  // of a std::vector of indices
    fail(ErrorCode::kOutOfMemory, "[", op, "] the result does not fit into memory");
  }
}

}  // namespace mytorch::nn
