/** What a WebSocket's closing frame holds of its reason; `ws` throws above it. units: bytes. */
const maxBytes = 123

/** Returns `text`, cut behind the last whole character that a WebSocket's closing frame has room for. */
export function closeReason(text: string): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(maxBytes))
  return text.slice(0, read)
}
