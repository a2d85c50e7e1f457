import { inUnitsOf } from '../../util/byte-units.ts'
import { GpuError, messageOf } from '../../util/errors.ts'
import { freeBytes } from '../../wasm/kernel/memory.ts'
import { sharesMemory } from '../num-threads.ts'

/** Regions start at a multiple of this: a line of the CPU's cache. */
const alignment = 64
const pageBytes = 2 ** 16
/** All that a 32-bit address reaches. */
const addressablePages = 2 ** 16
/** Pages to grow by at once. */
const growth = 16
/** Behind the last region: a kernel may read a vector, or an element that it then leaves out, past the end of a buffer. */
const spareBytes = pageBytes

interface Span {
  start: number
  end: number
}

/** One WebAssembly memory, given out in regions: the first gap that is large enough, and gaps that touch are one. */
export class WasmHeap {
  readonly memory: WebAssembly.Memory
  readonly isShared = sharesMemory()
  readonly #maxBytes: number
  /** In the order of their addresses; none ends at `#top`. */
  readonly #gaps: Span[] = []
  /** Ends by the addresses of regions that are taken. */
  readonly #taken = new Map<number, number>()
  #takenBytes = 0
  /** The end of the last region. */
  #top = freeBytes
  /** From here on no byte was ever given out, so that all are 0. */
  #touched = freeBytes
  #view = new Uint8Array(0)

  constructor(maxPages = addressablePages) {
    const { memory, maximum } = reserve(maxPages, this.isShared)
    this.memory = memory
    this.#maxBytes = maximum * pageBytes
  }

  /** All bytes of the memory; after `allocate` they may be in another array. */
  get bytes(): Uint8Array {
    const { buffer } = this.memory
    if (this.#view.buffer !== buffer) this.#view = new Uint8Array(buffer)
    return this.#view
  }

  /** Bytes of all regions. */
  get takenBytes(): number {
    return this.#takenBytes
  }

  /** Returns the address of a region of zeros. errors: `gpu.limit`, naming `label`. */
  allocate(label: string, sizeBytes: number): number {
    // A region of 0 bytes has its own address too: it is freed by that.
    const size = Math.ceil(Math.max(sizeBytes, 1) / alignment) * alignment
    const at = this.#gaps.findIndex(({ start, end }) => end - start >= size)
    const start = at < 0 ? this.#append(label, size) : this.#gaps[at].start
    if (at >= 0) {
      this.#gaps[at].start += size
      if (this.#gaps[at].start === this.#gaps[at].end) this.#gaps.splice(at, 1)
    }
    const end = start + size
    if (start < this.#touched) this.bytes.fill(0, start, Math.min(end, this.#touched))
    this.#touched = Math.max(this.#touched, end)
    this.#taken.set(start, end)
    this.#takenBytes += size
    return start
  }

  free(start: number): void {
    const end = this.#taken.get(start)
    if (end === undefined) return
    this.#taken.delete(start)
    this.#takenBytes -= end - start
    const gap = { start, end }
    const after = this.#gaps.findIndex((other) => other.start > start)
    let at = after < 0 ? this.#gaps.length : after
    if (this.#gaps[at]?.start === end) gap.end = this.#gaps.splice(at, 1)[0].end
    if (this.#gaps[at - 1]?.end === start) gap.start = this.#gaps.splice(--at, 1)[0].start
    if (gap.end === this.#top) this.#top = gap.start
    else this.#gaps.splice(at, 0, gap)
  }

  #append(label: string, size: number): number {
    const start = this.#top
    const end = start + size + spareBytes
    const given = this.memory.buffer.byteLength
    if (end > given && !this.#grow(Math.ceil((end - given) / pageBytes))) {
      const isAtMax = end > this.#maxBytes
      const all = isAtMax ? this.#maxBytes : given
      const bytes = inUnitsOf(all)
      const [giver, way] = isAtMax
        ? ['WebAssembly', 'Use']
        : [
            'the browser or process',
            'It gives no more: close other tabs or programs, or give this process more memory. Else use',
          ]
      throw new GpuError(
        'gpu.limit',
        `device: "${label}" needs ${bytes(size)} in one piece, and ${bytes(this.#takenBytes)} of the ${bytes(all)} that ${giver} gives are taken. ${way} a smaller model or batch, split the model over more ranks, or free models and programs that are no longer used with destroy().`,
      )
    }
    this.#top = start + size
    return start
  }

  #grow(pages: number): boolean {
    for (const count of [Math.ceil(pages / growth) * growth, pages]) {
      try {
        this.memory.grow(count)
        return true
      } catch {
        // Past the maximum, or the system gives no more.
      }
    }
    return false
  }
}

/** A memory that may grow to `maximum` pages, or to as many as the engine agrees to reserve. errors: `gpu.limit`. */
function reserve(
  maximum: number,
  shared: boolean,
): { memory: WebAssembly.Memory; maximum: number } {
  try {
    return { memory: new WebAssembly.Memory({ initial: 1, maximum, shared }), maximum }
  } catch (error) {
    if (maximum <= growth)
      throw new GpuError(
        'gpu.limit',
        `device: "cpu" gets no memory (${messageOf(error)}). Close other tabs or programs, or give this process more memory.`,
        { cause: error },
      )
    return reserve(Math.floor(maximum / 2), shared)
  }
}
