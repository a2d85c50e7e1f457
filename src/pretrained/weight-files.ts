import type { OpenFile } from '../data/byte-source.ts'
import { malformed } from '../data/malformed.ts'
import { type ModelFolder, missingIn, mustOpenIn, openIn } from '../data/model-folder.ts'
import { openSafetensors } from '../data/safetensors.ts'
import { clipped } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { isPlain, quoted } from '../util/kind-of.ts'
import { readJson } from './read-json.ts'

export type WeightDtype = 'F32' | 'F16' | 'BF16'

/** A tensor in one of the files. `begin` and `end` count from the file's first byte. units: bytes. */
export interface WeightEntry {
  readonly key: string
  readonly file: OpenFile
  readonly dtype: WeightDtype
  readonly shape: readonly number[]
  readonly begin: number
  readonly end: number
}

const single = 'model.safetensors'
const index = 'model.safetensors.index.json'
const fetchAgain = 'Fetch the folder again.'

/**
 * Returns the tensors of a folder by key, in the order in which they lie: of `model.safetensors`, or of the shards that
 * `model.safetensors.index.json` names. Headers alone are read.
 *
 * errors: `data.missing` for a file that is not there; `data.malformed` for a truncated one, a shard without the tensors that the index
 * places there, and types of other numbers than floats of 16 or 32 bits.
 */
export async function openWeights(folder: ModelFolder): Promise<Map<string, WeightEntry>> {
  const file = await openIn(folder, single)
  if (file) return new Map((await entriesOf(file)).map((entry) => [entry.key, entry]))
  const placed = await readJson(folder, index)
  if (placed === undefined)
    return missingIn(folder, single, 'Save the model with save_pretrained, as safetensors.')
  const all = new Map<string, WeightEntry>()
  for (const [name, keys] of shardsIn(placed)) {
    const shard = await mustOpenIn(folder, name, `${index} names it. ${fetchAgain}`)
    const entries = await entriesOf(shard)
    const own = new Set(entries.map(({ key }) => key))
    const lacking = keys.find((key) => !own.has(key))
    if (lacking !== undefined)
      throw malformed(
        name,
        `the tensor "${clipped(lacking)}", which ${index} places there`,
        `${own.size} others, such as "${clipped([...own][0] ?? '')}"`,
        `Two shards may have each other's name. ${fetchAgain}`,
      )
    for (const entry of entries) {
      const other = all.get(entry.key)?.file.name
      if (other !== undefined)
        throw malformed(
          name,
          `no tensor of ${other}`,
          `"${clipped(entry.key)}" a second time`,
          fetchAgain,
        )
      all.set(entry.key, entry)
    }
  }
  return all
}

/** The keys that an index places in each file. */
function shardsIn(json: unknown): Map<string, string[]> {
  const map = isPlain(json) ? json['weight_map'] : undefined
  if (!isPlain(map) || Object.keys(map).length === 0)
    throw malformed(index, 'a weight_map of tensors to files', quoted(map))
  const shards = new Map<string, string[]>()
  for (const [key, name] of Object.entries(map)) {
    if (typeof name !== 'string' || !/^[^./\\][^/\\]*$/.test(name))
      throw malformed(index, `the name of a file for "${clipped(key)}"`, quoted(name))
    const keys = shards.get(name) ?? []
    keys.push(key)
    shards.set(name, keys)
  }
  return shards
}

async function entriesOf(file: OpenFile): Promise<WeightEntry[]> {
  const { entries, dataAt } = await openSafetensors(file)
  return entries.map(({ name, dtype, shape, begin, end }) => {
    if (dtype !== 'F32' && dtype !== 'F16' && dtype !== 'BF16')
      throw new DataError(
        'data.malformed',
        `${file.name}: "${clipped(name)}": expected F32, F16 or BF16, got ${dtype}. Choose a model that is not quantized.`,
      )
    return { key: name, file, dtype, shape, begin: dataAt + begin, end: dataAt + end }
  })
}
