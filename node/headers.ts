/** Sent with every page and script: without these two a page gets coarse clocks and no SharedArrayBuffer. */
export const isolationHeaders = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
} as const
