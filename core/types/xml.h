// Text in XML, as of pictures in SVG.
#pragma once

#include <string>
#include <string_view>

namespace mytorch {

// Returns the text with its special characters replaced. Control characters, of which XML has none,
// become spaces.
inline std::string xml_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return result;
}

}  // namespace mytorch
