# snug_embed_assets(report page.css page.js): the text of assets/page.css and the others as constants of
# snug::report::assets that are named after them, page_css and so on, and of each script its SHA-256 as a
# content security policy names it, page_js_hash. src/report/html_page.h declares them. The sources are written
# when the program is built, by this file run as a script, and anew when an asset changes.
function(snug_embed_assets library)
  foreach(asset ${ARGN})
    string(MAKE_C_IDENTIFIER ${asset} name)
    set(from ${CMAKE_SOURCE_DIR}/assets/${asset})
    set(to ${CMAKE_CURRENT_BINARY_DIR}/assets/${name}.cpp)
    set(script ${CMAKE_SOURCE_DIR}/cmake/assets.cmake)
    add_custom_command(OUTPUT ${to} DEPENDS ${from} ${script} COMMENT "Embedding assets/${asset}" VERBATIM
      COMMAND ${CMAKE_COMMAND} -D name=${name} -D from=${from} -D to=${to} -P ${script})
    target_sources(snug_${library} PRIVATE ${to})
  endforeach()
endfunction()

# CMake says a hash in hexadecimal: 64 digits, of which three make two characters of base64.
function(base64_of_sha256 hex result)
  set(alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(base64 "")
  foreach(at RANGE 0 63 3)
    string(SUBSTRING ${hex}00 ${at} 3 digits)
    math(EXPR first "0x${digits} >> 6")
    math(EXPR second "0x${digits} & 63")
    string(SUBSTRING ${alphabet} ${first} 1 first)
    string(SUBSTRING ${alphabet} ${second} 1 second)
    string(APPEND base64 ${first}${second})
  endforeach()
  string(SUBSTRING ${base64} 0 43 base64)
  set(${result} ${base64}= PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(READ ${from} text)
  # What the file is and its licence are for those who read it here.
  string(REGEX REPLACE "^/\\*[^*]*\\*/\n" "" text "${text}")
  set(constants "const std::string_view ${name} = R\"asset(${text})asset\";\n")
  if(name MATCHES "_js$")
    string(SHA256 hex "${text}")
    base64_of_sha256(${hex} hash)
    string(APPEND constants "const std::string_view ${name}_hash = \"${hash}\";\n")
  endif()
  file(WRITE ${to} "#include \"report/html_page.h\"\n\nnamespace snug::report::assets {\n${constants}}\n")
endif()
