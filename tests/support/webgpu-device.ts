import './equal-bits.ts'
import { type InjectedEnvironment, injectedName } from '../../src/util/injected.ts'

// Specs of WebGPU compute there on a software adapter too, where `auto` would take the CPU.
const environment: InjectedEnvironment = { variables: { TABRING_DEVICE: 'webgpu' }, args: [] }
Object.assign(globalThis, { [injectedName]: environment })
