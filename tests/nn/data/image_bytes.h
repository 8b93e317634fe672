// Small image files.
#pragma once

#include <string>

namespace mytorch::testing {

// 2 x 3 pixels (10 x + y, 100 + x, 200 + y) with alpha.
inline constexpr char kPng[] =
    "89504e470d0a1a0a0000000d49484452000000030000000208060000009d74661a00000022494441"
    "5478da63604839d1c0957aa24124ed44030363cac906eed4930da269271b0080070a513e84956600"
    "00000049454e44ae426082";

// 8 x 16 pixels: (200, 100, 30) on the left, (10, 100, 240) on the right.
inline constexpr char kJpeg[] =
    "ffd8ffe000104a46494600010100000100010000ffdb004300020101010101020101010202020202"
    "0403020202020504040304060506060605060606070908060709070606080b08090a0a0a0a0a0608"
    "0b0c0b0a0c090a0a0affdb004301020202020202050303050a0706070a0a0a0a0a0a0a0a0a0a0a0a"
    "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0affc0"
    "0011080008001003011100021101031101ffc4001500010100000000000000000000000000000508"
    "ffc40014100100000000000000000000000000000000ffc400160101010100000000000000000000"
    "00000008090affc40014110100000000000000000000000000000000ffda000c0301000211031100"
    "3f001c2f3813db44887effd9";

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

inline std::string ppm(int width, int height) {
  std::string bytes =
      "P6\n# a comment\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n";
  for (int i = 0; i < 3 * width * height; ++i) bytes += static_cast<char>(i);
  return bytes;
}

}  // namespace mytorch::testing
