import { vi } from 'vitest'

/**
 * Lets devices that are opened from now on be lost as by a driver that was reset; returns what loses one.
 *
 * A page can lose one device alone only by `destroy`, whose reason is 'destroyed'; a GPU process that crashes takes those of all tabs. So the
 * browser's word is made here, 'unknown', and the worst of what may go with it: nothing that the device was given ends any more. Then the
 * device is destroyed, and its queue fails as that of any lost one. Undo it with `vi.restoreAllMocks()`.
 */
export function losableDevices(): (device: GPUDevice) => void {
  const tellers = new WeakMap<GPUDevice, (info: GPUDeviceLostInfo) => void>()
  const { requestDevice } = GPUAdapter.prototype
  vi.spyOn(GPUAdapter.prototype, 'requestDevice').mockImplementation(async function (
    this: GPUAdapter,
    descriptor?: GPUDeviceDescriptor,
  ) {
    const device = await requestDevice.call(this, descriptor)
    let isLost = false
    const lost = new Promise<GPUDeviceLostInfo>((resolve) =>
      tellers.set(device, (info) => {
        isLost = true
        resolve(info)
      }),
    )
    Object.defineProperty(device, 'lost', { value: lost })
    /** As `work`, and without an end once the device is lost. */
    const unlessLost = (work: Promise<undefined>) =>
      new Promise<undefined>((resolve, reject) => {
        work.then(
          (value) => isLost || resolve(value),
          (error) => isLost || reject(error),
        )
      })
    const { queue } = device
    const onSubmittedWorkDone = queue.onSubmittedWorkDone.bind(queue)
    queue.onSubmittedWorkDone = () => unlessLost(onSubmittedWorkDone())
    const createBuffer = device.createBuffer.bind(device)
    device.createBuffer = (of) => {
      const buffer = createBuffer(of)
      const mapAsync = buffer.mapAsync.bind(buffer)
      buffer.mapAsync = (...range) => unlessLost(mapAsync(...range))
      return buffer
    }
    return device
  })
  return (device) => {
    tellers.get(device)!({
      reason: 'unknown',
      message: 'the driver was reset',
    } as GPUDeviceLostInfo)
    setTimeout(() => device.destroy())
  }
}
