import type { DeviceType } from '../../util/device.ts'
import { switchValue } from '../../util/switches.ts'
import { recall, remember } from '../parts/tab-memory.ts'

/** Where this tab remembers that its person agreed to compute on the CPU; each tab has its own. */
const deviceKey = 'tabring-device'

/** What this tab computes on: WebGPU, unless its person or its address chose otherwise. */
export const chosenDevice = (): DeviceType =>
  switchValue('cpu') || recall(deviceKey) === 'cpu' ? 'cpu' : 'webgpu'

/** Goes on without WebGPU, on the CPU, for as long as the tab is open. */
export function chooseCpu(): void {
  if (remember(deviceKey, 'cpu')) {
    location.reload()
    return
  }
  // Nothing can be kept here but the address.
  const address = new URL(location.href)
  address.searchParams.set('cpu', '1')
  location.replace(address)
}
