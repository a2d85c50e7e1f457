/** Sent with every page and script: without these two a page gets coarse clocks and no SharedArrayBuffer. */
export const isolationHeaders = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
} as const

/**
 * What a page of ours may load and do, for its Content-Security-Policy: scripts, styles and workers of this server alone, and no frame around it.
 * It connects to any server, because a person may name one that has data.
 */
export const pagePolicy = [
  "default-src 'none'",
  // WebAssembly is compiled from bytes: the update on the host, with exact.
  "script-src 'self' 'wasm-unsafe-eval'",
  "worker-src 'self'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "connect-src 'self' http: https: ws: wss: blob: data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')
