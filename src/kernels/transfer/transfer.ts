import type { PlacedDevice } from '../../util/device.ts'
import { bytesOf, tensorType } from '../../util/shape.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { defineOp, type Op } from '../op.ts'
import { reads, writes } from '../shader.ts'

export interface TransferAttrs {
  readonly from: PlacedDevice
  readonly to: PlacedDevice
}

const first: PlacedDevice = { type: 'webgpu', index: 0 }
const second: PlacedDevice = { type: 'webgpu', index: 1 }
const attrs: TransferAttrs = { from: first, to: second }

/**
 * y = x on another device; its gradient goes the other way.
 *
 * A step over several devices sends x and receives y through the host; the kernel and the reference are the copy within one device.
 * shape: any, of any dtype.
 */
export const transfer: Op<TransferAttrs> = defineOp<TransferAttrs>({
  name: 'transfer',
  takesHalf: true,
  infer: ([x]) => [x],
  variants: oneVariant(({ inputs: [x] }) =>
    eachElement({
      label: 'transfer',
      count: bytesOf(x) / 4,
      bindings: [reads('x', { in: 0 }, 'u32'), writes('y', { out: 0 }, 'u32')],
      main: ['y[i] = x[i];'],
    }),
  ),
  gradient: ({ outputGradients: [dy], attrs: { from, to }, emit }) =>
    dy ? emit(transfer, [dy], { from: to, to: from }) : [],
  reference: ([x]) => [x.slice()],
  tolerance: { absolute: 0, relative: 0, because: 'copies' },
  cases: [
    { name: 'one element', inputs: [tensorType([1])], attrs },
    { name: 'nothing', inputs: [tensorType([0, 3])], attrs },
    { name: '67 x 3', inputs: [tensorType([67, 3])], attrs },
    { name: 'integers', inputs: [tensorType([9], 'i32')], attrs, integerBelow: { 0: 100 } },
    { name: 'huge', inputs: [tensorType([130])], attrs, fill: 'huge' },
  ],
})
