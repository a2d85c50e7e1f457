import type { OpenFile } from '../data/byte-source.ts'
import type { ModelFolder } from '../data/model-folder.ts'
import type { Module } from '../nn/module.ts'
import { stateValues } from '../nn/state-values.ts'
import { calledAs } from '../util/called-as.ts'
import { clipped } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import type { WeightEntry } from './weight-files.ts'

/** Bytes of the weights that have been read, of those that will be. */
export interface WeightProgress {
  readonly doneBytes: number
  readonly totalBytes: number
}

export interface WeightOptions {
  onProgress?: (progress: WeightProgress) => void
  signal?: AbortSignal
}

/** Read at once, so that small tensors share a request. */
const pieceBytes = 16 * 2 ** 20

/** A file from one place on, piece by piece; bytes are asked for in order. */
class Pieces {
  #bytes = new Uint8Array()
  #at = 0

  constructor(
    readonly file: OpenFile,
    /** Bytes from here on are of no use. */
    readonly end: number,
    readonly onBytes: (count: number) => void,
  ) {}

  /** Returns bytes from `begin` on, before `end`, as many as one piece has. */
  async from(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    if (begin < this.#at || begin >= this.#at + this.#bytes.length) {
      this.#bytes = new Uint8Array()
      this.#bytes = await this.file.read(begin, Math.min(this.end, begin + pieceBytes))
      this.#at = begin
      this.onBytes(this.#bytes.length)
    }
    return this.#bytes.subarray(begin - this.#at, end - this.#at)
  }
}

/**
 * Loads the tensors of a folder into a module, all or none: once all have been read, they are converted and assigned one by one.
 *
 * cost: host memory for the tensors as the files have them, 16 MiB, and one tensor; what is assigned takes their place.
 * `isIgnored`: keys that may be there and mean nothing.
 * errors: those of `Module.loadStateDict` before any tensor is read; `data.malformed` for a weight that is no finite number, naming its
 * tensor; the folder's, and the signal's reason.
 */
export async function loadWeights(
  module: Module,
  folder: ModelFolder,
  weights: ReadonlyMap<string, WeightEntry>,
  isIgnored: (key: string) => boolean,
  { onProgress, signal }: WeightOptions,
): Promise<void> {
  const given = [...weights].filter(([key]) => !isIgnored(key))
  const [where = 'model.safetensors'] = new Set(given.map(([, { file }]) => file.name))
  const { found, finish } = calledAs(`${where}, by config.json`, 'loadStateDict', () =>
    module.planLoad(Object.fromEntries(given)),
  )
  const wanted = new Set(found.map(({ saved }) => saved))
  const runs = runsOf([...weights.values()].filter((entry) => wanted.has(entry)))
  const files = new Set([...wanted].map(({ file }) => file))
  const sum = (sizes: number[]) => sizes.reduce((total, size) => total + size, 0)
  const isKept = folder.keep !== undefined
  const totalBytes = isKept
    ? sum([...files].map(({ sizeBytes }) => sizeBytes))
    : sum([...wanted].map(({ begin, end }) => end - begin))
  const report = (doneBytes: number) => onProgress?.({ doneBytes, totalBytes })
  signal?.throwIfAborted()
  report(0)
  await folder.keep?.(
    [...files].map(({ name }) => name),
    report,
  )
  const read = new Map<WeightEntry, WeightArray>()
  let doneBytes = 0
  for (const run of runs) {
    const pieces = new Pieces(run[0].file, run.at(-1)!.end, (count) => {
      doneBytes += count
      if (!isKept) report(doneBytes)
    })
    for (const entry of run) read.set(entry, await readTensor(entry, pieces, signal))
  }
  signal?.throwIfAborted()
  for (const { key, tensor, saved } of found) {
    const { dtype, shape } = saved
    const target = tensor.dtype === 'i32' ? 'i32' : 'f32'
    const values = stateValues(key, { dtype, shape, data: read.get(saved)! }, target)
    read.delete(saved)
    tensor.assignWhole(values)
  }
  finish()
}

/** Tensors that lie one after the other in a file, without others between. */
function runsOf(entries: readonly WeightEntry[]): WeightEntry[][] {
  const runs: WeightEntry[][] = []
  for (const entry of entries) {
    const last = runs.at(-1)?.at(-1)
    if (last && last.file === entry.file && last.end === entry.begin) runs.at(-1)!.push(entry)
    else runs.push([entry])
  }
  return runs
}

type WeightArray = Float32Array<ArrayBuffer> | Uint16Array<ArrayBuffer>

async function readTensor(
  { key, file, dtype, begin, end }: WeightEntry,
  pieces: Pieces,
  signal: AbortSignal | undefined,
): Promise<WeightArray> {
  const bytes = new Uint8Array(end - begin)
  for (let at = begin; at < end; ) {
    signal?.throwIfAborted()
    const part = await pieces.from(at, end)
    bytes.set(part, at - begin)
    at += part.length
  }
  const isWide = dtype === 'F32'
  const words = isWide ? new Uint32Array(bytes.buffer) : new Uint16Array(bytes.buffer)
  // All bits of the exponent are set in what is no finite number.
  const exponent = isWide ? 0x7f800000 : dtype === 'F16' ? 0x7c00 : 0x7f80
  let wrong = 0
  while (wrong < words.length && (words[wrong] & exponent) !== exponent) wrong++
  if (wrong === words.length)
    return isWide ? new Float32Array(bytes.buffer) : (words as Uint16Array<ArrayBuffer>)
  const isNan = (words[wrong] & ~exponent & (isWide ? 0x7fffffff : 0x7fff)) !== 0
  throw new DataError(
    'data.malformed',
    `${file.name}: "${clipped(key)}": expected finite numbers, got ${isNan ? 'NaN' : 'infinity'} as element ${wrong}. The model is damaged: fetch the file again, or choose another one.`,
  )
}
