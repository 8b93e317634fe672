// Backends whose init fails. CMakeLists.txt builds this file once for each.
#include <stdexcept>

#include "mytorch/abi.h"

extern "C" MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* /*backend*/) {
#if defined(BROKEN_THROWS)
  if (host != nullptr) throw std::runtime_error("out of its mind");
  return MT_OK;
#else
  host->set_error(MT_ERROR_IO, "the chip does not answer");
  return MT_ERROR_IO;
#endif
}
