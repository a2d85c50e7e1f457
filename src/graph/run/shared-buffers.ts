import type { Memory } from '../memory/memory-device.ts'
import type { ModuleBuffer } from '../trace/module-buffer.ts'

/** Buffers one after the other as words (integers travel as their bits), and where the words of each begin. */
export interface PackedBuffers {
  /** Of all words. */
  readonly length: number
  readonly parts: readonly { readonly buffer: ModuleBuffer; readonly start: number }[]
}

export function packBuffers(buffers: readonly ModuleBuffer[]): PackedBuffers {
  let length = 0
  const parts = buffers.map((buffer) => {
    const start = length
    length += buffer.count
    return { buffer, start }
  })
  return { parts, length }
}

/** Copies `words` to the buffers in this memory. */
export function writeBuffers(
  memory: Memory,
  { parts }: PackedBuffers,
  words: Float32Array<ArrayBuffer>,
): void {
  const bits = new Int32Array(words.buffer)
  for (const { buffer, start } of parts) {
    const home = buffer.place(memory)
    home.pool.write(bits.slice(start, start + buffer.count), home.start)
  }
}
