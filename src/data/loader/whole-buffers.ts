import { isOf, isPlain } from '../../util/kind-of.ts'
/**
 * Returns `value` with every typed array on a buffer that holds nothing else, and those buffers, to be handed over to another thread.
 *
 * A view of a part is copied: posting it would take the whole buffer along, and with it what else lies there.
 */
export function wholeBuffers(value: unknown): { value: unknown; buffers: ArrayBuffer[] } {
  const buffers = new Set<ArrayBuffer>()
  const walk = (part: unknown): unknown => {
    if (ArrayBuffer.isView(part) && !isOf(part, DataView)) {
      const view = part as Uint8Array
      const isWhole =
        isOf(view.buffer, ArrayBuffer) &&
        view.byteLength === view.buffer.byteLength &&
        !buffers.has(view.buffer)
      const whole = isWhole ? view : view.slice()
      buffers.add(whole.buffer as ArrayBuffer)
      return whole
    }
    if (Array.isArray(part)) return part.map(walk)
    if (isPlain(part))
      return Object.fromEntries(Object.entries(part).map(([key, inner]) => [key, walk(inner)]))
    return part
  }
  return { value: walk(value), buffers: [...buffers] }
}
