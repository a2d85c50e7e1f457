import type { Gpu } from '../../gpu/device.ts'
import { formatDevice, type PlacedDevice } from '../../util/device.ts'

/** Memory that holds a pool's contents: a device's memory, or that of this page or worker, where the references compute. */
export type Memory = Gpu | 'host'

export const referenceDevice: PlacedDevice = { type: 'reference', index: 0 }

export const deviceOf = (memory: Memory): PlacedDevice =>
  memory === 'host' ? referenceDevice : memory.id

/** A memory's device in words; two openings of one adapter get different words. */
export const formatMemory = (memory: Memory, other?: Memory): string => {
  const text = formatDevice(deviceOf(memory))
  const isAmbiguous = other && other !== memory && formatDevice(deviceOf(other)) === text
  return isAmbiguous ? `${text} (opened separately)` : text
}
