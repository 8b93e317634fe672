// Reports that a browser shows: one file, which loads nothing from elsewhere.
#pragma once

#include <string>

#include "conformance/catalog.h"

namespace mytorch::conformance {

// Writes `data` as a page with the script report/`kind`.js of the share folder. The script finds
// the data as `data` and the helpers of report/page.html. Throws Error(kIo).
void write_page(const std::string& kind, const std::string& title, const Json& data,
                const std::string& path);

// Throws Error(kIo) if a file cannot be written to.
void check_writable(const std::string& command, const std::string& path);

}  // namespace mytorch::conformance
