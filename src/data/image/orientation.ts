const exif = [0x45, 0x78, 0x69, 0x66, 0, 0]

/**
 * Makes a JPEG file's Exif segments unreadable, in place, and with them the note on how the camera was held. Other files stay as they are.
 *
 * Browsers turn an image by that note, whatever they are asked: `imageOrientation: 'none'` means the same as the default in the HTML
 * standard, and in Chromium 156 (measured). Pixels do not depend on anything else in these segments.
 * source: JPEG's segments are 0xff, a marker, two bytes of length (their own included), contents; pixels begin after marker 0xda.
 */
export function forgetOrientation(bytes: Uint8Array): void {
  if (bytes[0] !== 0xff || bytes[1] !== 0xd8) return
  let at = 2
  while (at + 4 <= bytes.length && bytes[at] === 0xff) {
    const marker = bytes[at + 1]
    if (marker === 0xff) {
      // A filling byte.
      at++
      continue
    }
    if (marker === 0xda || marker === 0xd9) return
    const contents = at + 4
    if (marker === 0xe1 && exif.every((byte, i) => bytes[contents + i] === byte))
      bytes.fill(0, contents, contents + exif.length)
    at += 2 + ((bytes[at + 2] << 8) | bytes[at + 3])
  }
}
