/** Bytes that AES-GCM and its nonce of 12 bytes add to a value. units: bytes. */
export const boxBytes = 12 + 16

/** How long the box of a value of `valueBytes` is. units: characters of base64url. */
export function boxCharsOf(valueBytes: number): number {
  return Math.ceil(((valueBytes + boxBytes) * 4) / 3)
}
