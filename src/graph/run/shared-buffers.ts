import type { Memory } from '../memory/memory-device.ts'
import type { ModuleBuffer } from '../trace/module-buffer.ts'

/** A buffer, and where its words begin among those of several. */
export interface PackedBuffer {
  readonly buffer: ModuleBuffer
  readonly start: number
}

/** The buffers one after the other as words (integers travel as their bits), and how many words there are. */
export function packBuffers(buffers: readonly ModuleBuffer[]) {
  let words = 0
  const parts = buffers.map((buffer): PackedBuffer => {
    const start = words
    words += buffer.count
    return { buffer, start }
  })
  return { parts, words }
}

/** Copies buffers on the host to `words`. */
export function readHostBuffers(
  parts: readonly PackedBuffer[],
  words: Float32Array<ArrayBuffer>,
): void {
  const bits = new Int32Array(words.buffer)
  for (const { buffer, start } of parts) {
    const home = buffer.place('host')
    bits.set(home.pool.host(home.start, buffer.count, 'i32'), start)
  }
}

/** Copies `words` to the buffers in this memory. */
export function writeBuffers(
  memory: Memory,
  parts: readonly PackedBuffer[],
  words: Float32Array<ArrayBuffer>,
): void {
  const bits = new Int32Array(words.buffer)
  for (const { buffer, start } of parts) {
    const home = buffer.place(memory)
    home.pool.write(bits.slice(start, start + buffer.count), home.start)
  }
}
