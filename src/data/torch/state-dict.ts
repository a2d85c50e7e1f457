import { clipped, clippedName } from '../../util/clipped.ts'
import { DataError } from '../../util/errors.ts'
import { type ByteSource, openFile } from '../byte-source.ts'
import { readOpenSafetensors, type SafeTensor } from '../safetensors.ts'
import { Dict, Refused } from './pickle-reader.ts'
import { readValue } from './read-torch.ts'
import { StoredTensor } from './tensors.ts'
import { beginBytes, isTorchFile, openTorch } from './torch-file.ts'

/**
 * Returns the tensors of a file by key, of safetensors or of torch.save, whichever its bytes are. Its elements are read tensor by tensor.
 *
 * A checkpoint of torch.save may hold the state dict as its only part that is one.
 * errors: `data.missing`; `data.malformed` as `readTorch` and `readSafetensors`, and for a file without a state dict or with several,
 * naming its keys.
 */
export async function readStateDict(
  source: ByteSource,
  name: string,
): Promise<Record<string, SafeTensor>> {
  const file = await openFile(source, clippedName(name))
  if (!isTorchFile(await file.read(0, beginBytes)))
    return Object.fromEntries(
      (await readOpenSafetensors(file, 'a file of safetensors or torch.save')).tensors,
    )
  const torch = await openTorch(file)
  return (await readValue(torch, stateIn(torch.value, torch.name))) as Record<string, SafeTensor>
}

/** Returns whether it is a tensor, if of a kind that is refused. */
const isTensor = (value: unknown): boolean =>
  value instanceof StoredTensor ||
  (value instanceof Refused && value.name.startsWith('torch._utils._rebuild_'))

const isState = (value: unknown): boolean =>
  value instanceof Dict && [...value.entries.values()].some(isTensor)

function stateIn(value: unknown, where: string): unknown {
  // Reading it names the class.
  if (value instanceof Refused) return value
  const parts = value instanceof Dict ? [...value.entries] : []
  const states = parts.filter(([, part]) => isState(part))
  if (states.length === 1) return states[0][1]
  if (states.length === 0 && value instanceof Dict && (isState(value) || parts.length === 0))
    return value
  const shown = parts.map(([key, part]) =>
    part instanceof Refused ? `${String(key)} (an object of class ${part.name})` : String(key),
  )
  const got = value instanceof Dict ? `the keys ${shown.join(', ')}` : 'another value'
  throw new DataError(
    'data.malformed',
    `${where}: expected ${states.length > 1 ? 'one state dict' : 'a state dict'}, or one under a key such as state_dict, model_state_dict, model, got ${clipped(got, 300)}. Save the model's state_dict(), or read the file with readTorch and give one part to model.loadStateDict.`,
  )
}
