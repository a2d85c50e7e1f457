import { malformed } from './malformed.ts'

/** The text of a file. errors: `data.malformed`, naming the line, for bytes that are not UTF-8. */
export function decodeUtf8(bytes: Uint8Array<ArrayBuffer>, where: string): string {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  try {
    return decoder.decode(bytes)
  } catch {
    throw malformed(where, 'UTF-8 text', otherText(bytes, decoder), 'Save the file as UTF-8.')
  }
}

function otherText(bytes: Uint8Array<ArrayBuffer>, decoder: TextDecoder): string {
  const [first, second] = bytes
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff))
    return 'UTF-16, by its first two bytes'
  let line = 1
  for (let begin = 0; ; line++) {
    // No other character of UTF-8 has this byte.
    const end = bytes.indexOf(0x0a, begin)
    try {
      decoder.decode(bytes.subarray(begin, end < 0 ? bytes.length : end))
    } catch {
      return `other bytes in line ${line}`
    }
    begin = end + 1
  }
}
