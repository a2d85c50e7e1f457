import type { Tensor } from '../graph/trace/tensor.ts'
import { checkArgument, checkList, checkNumber, checkOptions, isCount } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { BatchNorm2d } from './batch-norm.ts'
import { Conv2d } from './convolution.ts'
import { kaimingNormal } from './init.ts'
import { Linear, ReLU } from './layers.ts'
import { Module, Sequential } from './module.ts'
import { AdaptiveAvgPool2d, MaxPool2d } from './pooling.ts'

export interface ResNetOptions {
  /** Default 1000. */
  numClasses?: number
  /**
   * Adapts to images of about 32x32 pixels: the first convolution is 3x3 with stride 1 and without pooling, as He et al. do on CIFAR-10.
   * Keys stay the same. Default false: 7x7 with stride 2, then pooling, for 224x224.
   */
  smallInputs?: boolean
  /** Channels of the first stage, doubled at each later one; default 64. */
  width?: number
}

const convolution3x3 = (from: number, to: number, stride: number) =>
  new Conv2d(from, to, 3, { stride, padding: 1, bias: false })

const convolution1x1 = (from: number, to: number, stride = 1) =>
  new Conv2d(from, to, 1, { stride, bias: false })

/** How a block's input gets the shape of its output, where they differ. */
const projection = (from: number, to: number, stride: number): Sequential | undefined =>
  stride === 1 && from === to
    ? undefined
    : new Sequential(convolution1x1(from, to, stride), new BatchNorm2d(to))

/** Two 3x3 convolutions around a shortcut. shape: [N, from, H, W] -> [N, channels, H / stride, W / stride] */
class BasicBlock extends Module {
  static readonly expansion = 1
  readonly conv1: Conv2d
  readonly bn1: BatchNorm2d
  readonly conv2: Conv2d
  readonly bn2: BatchNorm2d
  readonly downsample: Sequential | undefined

  constructor(from: number, channels: number, stride: number) {
    super()
    this.conv1 = convolution3x3(from, channels, stride)
    this.bn1 = new BatchNorm2d(channels)
    this.conv2 = convolution3x3(channels, channels, 1)
    this.bn2 = new BatchNorm2d(channels)
    this.downsample = projection(from, channels, stride)
  }

  forward(x: Tensor): Tensor {
    const inner = this.bn1.forward(this.conv1.forward(x)).relu()
    const outer = this.bn2.forward(this.conv2.forward(inner))
    return outer.add(this.downsample?.forward(x) ?? x).relu()
  }
}

/** 1x1, 3x3 and 1x1 convolutions around a shortcut; the stride is at the 3x3, as in torchvision. */
class Bottleneck extends Module {
  static readonly expansion = 4
  readonly conv1: Conv2d
  readonly bn1: BatchNorm2d
  readonly conv2: Conv2d
  readonly bn2: BatchNorm2d
  readonly conv3: Conv2d
  readonly bn3: BatchNorm2d
  readonly downsample: Sequential | undefined

  constructor(from: number, channels: number, stride: number) {
    super()
    const wide = channels * Bottleneck.expansion
    this.conv1 = convolution1x1(from, channels)
    this.bn1 = new BatchNorm2d(channels)
    this.conv2 = convolution3x3(channels, channels, stride)
    this.bn2 = new BatchNorm2d(channels)
    this.conv3 = convolution1x1(channels, wide)
    this.bn3 = new BatchNorm2d(wide)
    this.downsample = projection(from, wide, stride)
  }

  forward(x: Tensor): Tensor {
    const first = this.bn1.forward(this.conv1.forward(x)).relu()
    const second = this.bn2.forward(this.conv2.forward(first)).relu()
    const third = this.bn3.forward(this.conv3.forward(second))
    return third.add(this.downsample?.forward(x) ?? x).relu()
  }
}

type Block = typeof BasicBlock | typeof Bottleneck

/**
 * A residual network with torchvision's structure, state-dict keys and initial distributions.
 *
 * shape: [N, 3, H, W] -> [N, numClasses]
 * source: He et al., arXiv 1512.03385; torchvision.models.resnet.
 */
export class ResNet extends Module {
  readonly conv1: Conv2d
  readonly bn1: BatchNorm2d
  readonly relu = new ReLU()
  readonly maxpool: MaxPool2d | undefined
  readonly layer1: Sequential
  readonly layer2: Sequential
  readonly layer3: Sequential
  readonly layer4: Sequential
  readonly avgpool = new AdaptiveAvgPool2d(1)
  readonly fc: Linear

  /** `depths`: number of blocks in each stage. */
  constructor(
    block: Block,
    depths: readonly [number, number, number, number],
    options: ResNetOptions,
  ) {
    super()
    const known = { numClasses: true, smallInputs: 'flag', width: true } as const
    checkOptions('ResNet', options, known)
    checkArgument('ResNet', 'block', block, isCount(block?.expansion), 'a class of blocks')
    checkList('ResNet', 'depths', depths, isCount, 'whole numbers above 0')
    checkArgument('ResNet', 'depths', depths, depths.length === 4, 'a list of 4')
    const { numClasses = 1000, smallInputs = false, width = 64 } = options
    checkNumber('ResNet', 'numClasses', numClasses, isCount, 'a whole number above 0')
    checkNumber('ResNet', 'width', width, isCount, 'a whole number above 0')
    this.conv1 = smallInputs
      ? convolution3x3(3, width, 1)
      : new Conv2d(3, width, 7, { stride: 2, padding: 3, bias: false })
    this.bn1 = new BatchNorm2d(width)
    this.maxpool = smallInputs ? undefined : new MaxPool2d(3, { stride: 2, padding: 1 })
    let from = width
    const stage = (channels: number, depth: number, stride: number) =>
      new Sequential(
        ...Array.from({ length: depth }, (_, i) => {
          const made = new block(from, channels, i === 0 ? stride : 1)
          from = channels * block.expansion
          return made
        }),
      )
    this.layer1 = stage(width, depths[0], 1)
    this.layer2 = stage(2 * width, depths[1], 2)
    this.layer3 = stage(4 * width, depths[2], 2)
    this.layer4 = stage(8 * width, depths[3], 2)
    this.fc = new Linear(from, numClasses)
    initializeConvolutions(this)
  }

  forward(x: Tensor): Tensor {
    const stem = this.relu.forward(this.bn1.forward(this.conv1.forward(x)))
    const stages = [this.layer1, this.layer2, this.layer3, this.layer4]
    const features = stages.reduce(
      (tensor, stage) => stage.forward(tensor),
      this.maxpool?.forward(stem) ?? stem,
    )
    return this.fc.forward(this.avgpool.forward(features).flatten(1))
  }
}

function initializeConvolutions(module: Module): void {
  if (module instanceof Conv2d) kaimingNormal(module.weight)
  for (const [, child] of module.children()) initializeConvolutions(child)
}

/** 18 layers; 11.7 million parameters with 1000 classes. */
export const resnet18 = (options: ResNetOptions = {}): ResNet =>
  new ResNet(BasicBlock, [2, 2, 2, 2], options)

/** 34 layers; 21.8 million parameters with 1000 classes. */
export const resnet34 = (options: ResNetOptions = {}): ResNet =>
  new ResNet(BasicBlock, [3, 4, 6, 3], options)

/** 50 layers; 25.6 million parameters with 1000 classes. */
export const resnet50 = (options: ResNetOptions = {}): ResNet =>
  new ResNet(Bottleneck, [3, 4, 6, 3], options)

for (const layer of [BasicBlock, Bottleneck, ResNet]) countArguments(layer)
