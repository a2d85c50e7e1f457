/**
 * Ranks as a grid, for training that is split in more than one way.
 *
 *     initDeviceMesh('webgpu', [2, 3], { meshDimNames: ['dp', 'pp'] })
 *
 *               pp 0  1  2
 *        dp 0      0  1  2     getGroup('pp') of rank 4: [3, 4, 5]
 *           1      3  4  5     getGroup('dp') of rank 4: [1, 4]
 *
 * source: torch.distributed.device_mesh.
 */

import { getProcessGroup } from '../../distributed/group/default-group.ts'
import { newSubgroupsByEnumeration } from '../../distributed/group/subgroups.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { ProcessGroup } from '../../peer/group/group.ts'
import { clipped } from '../../util/clipped.ts'
import { type DeviceType, device, deviceTypes, formatDevice } from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { isText, quoted } from '../../util/kind-of.ts'
import { checkArgument, checkChoice, checkList, checkOptions, isCount } from '../../util/options.ts'
import { formatShape } from '../../util/shape.ts'

export interface DeviceMeshOptions {
  /** A name for each dimension, such as `['dp', 'pp']`. */
  readonly meshDimNames?: readonly string[]
  /** The ranks; default: all of the default group. */
  readonly processGroup?: ProcessGroup
}

/** A dimension of a mesh: the ranks that differ from this one in it alone. */
interface Dimension {
  readonly name: string | undefined
  readonly group: CollectiveGroup
}

/** Ranks as a grid, seen from one of them; made by `initDeviceMesh`. */
export class DeviceMesh {
  readonly deviceType: DeviceType
  readonly #dimensions: readonly Dimension[]

  /** @internal */
  constructor(deviceType: DeviceType, dimensions: readonly Dimension[]) {
    this.deviceType = deviceType
    this.#dimensions = dimensions
  }

  /** The number of ranks along each dimension. */
  get shape(): readonly number[] {
    return this.#dimensions.map(({ group }) => group.size)
  }

  get meshDimNames(): readonly (string | undefined)[] {
    return this.#dimensions.map(({ name }) => name)
  }

  /** This rank's place along each dimension. */
  getCoordinate(): readonly number[] {
    return this.#dimensions.map(({ group }) => group.rank)
  }

  /** The mesh of one dimension through this rank: `mesh["dp"]` of PyTorch. errors: `config.invalid` for an unknown name. */
  get(name: string): DeviceMesh {
    return new DeviceMesh(this.deviceType, [this.#dimension('get', name)])
  }

  /** The ranks along a dimension, by number or name; of a mesh with one dimension it may be left out. errors: as `get`. */
  getGroup(meshDim?: number | string): CollectiveGroup {
    return this.#dimension('getGroup', meshDim).group
  }

  /** This rank's place along a dimension. errors: as `getGroup`. */
  getLocalRank(meshDim?: number | string): number {
    return this.#dimension('getLocalRank', meshDim).group.rank
  }

  /** The number of ranks along a dimension; without one, of the whole mesh. errors: as `get`. */
  size(meshDim?: number | string): number {
    if (meshDim !== undefined) return this.#dimension('size', meshDim).group.size
    return this.shape.reduce((product, size) => product * size, 1)
  }

  /** One device of each rank along a dimension, for `x.to`, `pipeline` and `compile`: `rank:3/webgpu:0`. errors: as `getGroup`. */
  devices(meshDim?: number | string, index = 0): string[] {
    const { type } = device(this.deviceType)
    const { ranks } = this.#dimension('devices', meshDim).group
    return ranks.map((rank) => formatDevice({ type, index, rank }))
  }

  #dimension(where: string, meshDim: number | string = 0): Dimension {
    const found =
      typeof meshDim === 'number'
        ? this.#dimensions[meshDim]
        : this.#dimensions.find(({ name }) => name === meshDim)
    if (found) return found
    const names = this.meshDimNames.map((name, at) => name ?? String(at)).join(', ')
    throw new TabringError(
      'config.invalid',
      `DeviceMesh.${where}: no dimension ${quoted(meshDim)}; this mesh has ${clipped(names)}. Use one of them.`,
    )
  }
}

/**
 * Arranges the ranks as a grid, the last dimension fastest, and makes the groups of each dimension.
 *
 * All ranks call it with the same arguments. `deviceType`: where tensors of the ranks lie, `'webgpu'`, `'cpu'` or `'reference'`. errors: `config.invalid`
 * unless the sizes multiply to the number of ranks, or for names that do not fit; `peer.*`.
 */
export async function initDeviceMesh(
  deviceType: DeviceType,
  meshShape: readonly number[],
  options: DeviceMeshOptions = {},
): Promise<DeviceMesh> {
  const known = { meshDimNames: true, processGroup: true } as const
  const { meshDimNames, processGroup } = checkOptions('initDeviceMesh', options, known)
  checkChoice('initDeviceMesh', 'deviceType', deviceType, deviceTypes)
  checkList('initDeviceMesh', 'meshShape', meshShape, isCount, 'sizes')
  if (meshDimNames !== undefined)
    checkList('initDeviceMesh', 'meshDimNames', meshDimNames, isText, 'texts')
  const group = processGroup ?? getProcessGroup('initDeviceMesh')
  const isOfAll = group instanceof ProcessGroup
  checkArgument('initDeviceMesh', 'processGroup', group, isOfAll, 'the group of all ranks')
  const refuse = (text: string) => new TabringError('config.invalid', `initDeviceMesh: ${text}`)
  const size = meshShape.reduce((product, count) => product * count, 1)
  if (meshShape.length === 0 || size !== group.size)
    throw refuse(
      `meshShape ${formatShape(meshShape)} must have as many places as there are ranks, ${group.size}. Change it, or start ${size} ranks.`,
    )
  const isNamed = meshDimNames !== undefined
  if (isNamed && new Set(meshDimNames).size !== meshShape.length)
    throw refuse(
      `meshDimNames must be ${meshShape.length} different names, got [${clipped(meshDimNames.join(', '))}]. Name each dimension once.`,
    )
  const dimensions: Dimension[] = []
  // One after the other: all ranks make the same groups in the same order.
  for (const dim of meshShape.keys()) {
    const [own] = await newSubgroupsByEnumeration(linesAlong(meshShape, dim), group)
    dimensions.push({ name: meshDimNames?.[dim], group: own! })
  }
  return new DeviceMesh(deviceType, dimensions)
}

/** The lists of ranks that differ in one dimension alone. */
export function linesAlong(meshShape: readonly number[], dim: number): number[][] {
  const stride = meshShape.slice(dim + 1).reduce((product, count) => product * count, 1)
  const size = meshShape.reduce((product, count) => product * count, 1)
  const length = meshShape[dim]
  const starts = Array.from({ length: size }, (_, rank) => rank).filter(
    (rank) => Math.floor(rank / stride) % length === 0,
  )
  return starts.map((start) => Array.from({ length }, (_, at) => start + at * stride))
}

/** errors: a TypeError, naming `where`, for what is no mesh. */
export const checkMesh = (where: string, mesh: unknown): void =>
  checkArgument(where, 'mesh', mesh, mesh instanceof DeviceMesh, 'a DeviceMesh')
