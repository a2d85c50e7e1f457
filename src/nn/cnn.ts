import { checkOptions } from '../util/options.ts'
import { BatchNorm2d } from './batch-norm.ts'
import { Conv2d } from './convolution.ts'
import { Flatten, Linear, ReLU } from './layers.ts'
import { Sequential } from './module.ts'
import { MaxPool2d } from './pooling.ts'

export interface CnnOptions {
  /** Shape of a sample: channels, height, width. Default [1, 28, 28]. */
  sampleShape?: readonly [channels: number, height: number, width: number]
  /** Channels of each convolution. Default [16, 32]. */
  channels?: readonly number[]
  /** Number of classes. Default 10. */
  classes?: number
  /** True if each convolution is followed by batch normalization. Default false. */
  batchNorm?: boolean
}

/** Returns a convolutional network: 3x3 convolutions, each with ReLU and 2x2 pooling, then a linear layer. */
export function cnn(options: CnnOptions = {}): Sequential {
  const known = { sampleShape: 'list', channels: 'list', classes: true, batchNorm: 'flag' } as const
  const checked = checkOptions('cnn', options, known)
  const { classes = 10, batchNorm = false } = checked
  const sampleShape = checked.sampleShape ?? [1, 28, 28]
  const channels = checked.channels ?? [16, 32]
  const [depth, height, width] = sampleShape
  const halved = (size: number) => Math.floor(size / 2 ** channels.length)
  const stages = channels.flatMap((count, i) => [
    new Conv2d(i === 0 ? depth : channels[i - 1], count, 3, { padding: 1 }),
    ...(batchNorm ? [new BatchNorm2d(count)] : []),
    new ReLU(),
    new MaxPool2d(2),
  ])
  const features = (channels.at(-1) ?? depth) * halved(height) * halved(width)
  return new Sequential(...stages, new Flatten(), new Linear(features, classes))
}
