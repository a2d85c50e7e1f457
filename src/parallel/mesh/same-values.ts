import type { Parameter } from '../../graph/trace/parameter.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'

type Floats = Float32Array<ArrayBuffer>

/** The values that rank 0 of a group has, by parameter; `contents`: this rank's. errors: `peer.*`. */
export async function valuesOfFirst(
  where: string,
  group: CollectiveGroup,
  contents: ReadonlyMap<Parameter, Floats>,
): Promise<Map<Parameter, Floats>> {
  const all = new Float32Array([...contents.values()].reduce((sum, { length }) => sum + length, 0))
  const parts = new Map<Parameter, Floats>()
  let start = 0
  for (const [parameter, own] of contents) {
    all.set(own, start)
    parts.set(parameter, all.subarray(start, start + own.length))
    start += own.length
  }
  await group.broadcast(all, 0, { label: where })
  return parts
}

/** Reads parameters, each once. */
export async function contentsOf(parameters: Iterable<Parameter>): Promise<Map<Parameter, Floats>> {
  const contents = new Map<Parameter, Floats>()
  for (const parameter of parameters) contents.set(parameter, await parameter.read())
  return contents
}
