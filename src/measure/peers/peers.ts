import type { MakeProduct } from '../product.ts'

export interface Peer {
  /** With its version. */
  readonly name: string
  /** For the head of a column. */
  readonly short: string
  readonly make: MakeProduct
}

/** The other libraries that train on WebGPU, by key; their code is loaded when it is asked for. */
export const peers = {
  jax: {
    name: 'jax-js 0.1.25',
    short: 'jax-js',
    make: async (...given) => (await import('./jax.ts')).jaxProduct(...given),
  },
  tfjs: {
    name: 'TensorFlow.js 4.22',
    short: 'TF.js',
    make: async (...given) => (await import('./tfjs.ts')).tfjsProduct(...given),
  },
} as const satisfies Readonly<Record<string, Peer>>

export type PeerKey = keyof typeof peers
