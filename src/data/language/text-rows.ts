/** Tokens of texts one after the other, and which of them lie in which row. */
export interface TextRows {
  readonly tokens: Int32Array<ArrayBuffer>
  /** 1 for a token that has a loss. shape: as `tokens` */
  readonly learned: Uint8Array<ArrayBuffer>
  /** First token of each part, and the end of its last. shape: [parts, 2] */
  readonly parts: Uint32Array<ArrayBuffer>
  /** First part of each row, and the number of parts. shape: [rows + 1] */
  readonly rows: Uint32Array<ArrayBuffer>
  /** Length of a row in tokens. */
  readonly blockSize: number
  /** Token after the last part of a row. */
  readonly padToken: number
}
