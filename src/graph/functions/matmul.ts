import { calledAs } from '../../util/called-as.ts'
import { ShapeError } from '../../util/errors.ts'
import { formatShape, type Shape } from '../../util/shape.ts'
import { mustBeTensor, type Tensor } from '../trace/tensor.ts'
import { type Arguments, mustBeFloat } from '../trace/tensor-arguments.ts'

/** Returns the matrix product, as Tensor.matmul. Products are named as in torch. */

export const matmul = (a: Tensor, b: Tensor): Tensor => mustBeTensor('matmul', { a, b }).matmul(b)

const mustHaveRank = (where: string, rank: number, tensors: Arguments<Tensor>) => {
  mustBeTensor(where, tensors)
  const other = Object.entries(tensors).find(([, { shape }]) => shape.length !== rank)
  if (other) {
    throw new ShapeError(
      'shape.mismatch',
      `${where}: ${other[0]} must have ${rank} ${rank === 1 ? 'dimension' : 'dimensions'}, got ${formatShape(other[1].shape)}. Reshape it, or use matmul().`,
    )
  }
}

const mustAgree = (where: string, what: string, a: Shape, b: Shape, agree: boolean) => {
  if (!agree) {
    throw new ShapeError(
      'shape.mismatch',
      `${where}: ${what} must agree, got ${formatShape(a)} and ${formatShape(b)}. Check the order of the dimensions.`,
    )
  }
}

/** Returns one product per batch, without broadcasting. shape: [B, M, K] x [B, K, N] -> [B, M, N] */
export function bmm(a: Tensor, b: Tensor): Tensor {
  mustHaveRank('bmm', 3, { a, b })
  mustBeFloat('bmm', a, b)
  mustAgree('bmm', 'batches', a.shape, b.shape, a.shape[0] === b.shape[0])
  return a.matmul(b)
}

/** Returns all products of an element of a and one of b. shape: [M] x [N] -> [M, N] */
export function outer(a: Tensor, b: Tensor): Tensor {
  mustHaveRank('outer', 1, { a, b })
  return calledAs('outer', 'mul', () => a.reshape([a.count, 1]).mul(b))
}

/** Returns the sum of products. shape: [K] x [K] -> [] */
export function dot(a: Tensor, b: Tensor): Tensor {
  mustHaveRank('dot', 1, { a, b })
  mustBeFloat('dot', a, b)
  mustAgree('dot', 'lengths', a.shape, b.shape, a.count === b.count)
  return a.matmul(b)
}
