import { VirtualEnv } from '../../src/util/virtual-env.ts'
import { collectiveMatrix, type MatrixWorld } from './collective-matrix.ts'
import { memoryMesh } from './memory-mesh.ts'
import { memoryRing } from './memory-ring.ts'

const worldOf = (env: VirtualEnv, groups: MatrixWorld['groups']): MatrixWorld => ({
  groups,
  until: (all) => env.until(all),
})
const edge = (env: VirtualEnv) => () => ({
  delayMs: () => env.chance() * 9,
  maxMessageBytes: 1024,
})

/** The matrix over links in memory whose messages take a random time. */
export const collectiveMatrixInMemory = (sizes: readonly number[]): void =>
  collectiveMatrix({
    sizes,
    links: {
      ring: (size, seed) => {
        const env = new VirtualEnv(seed)
        return worldOf(env, memoryRing(env, size, edge(env)).groups)
      },
      all: (size, seed) => {
        const env = new VirtualEnv(seed)
        return worldOf(env, memoryMesh(env, size, edge(env)))
      },
    },
  })
