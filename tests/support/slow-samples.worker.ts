import { serveSamples } from '../../src/data/loader/serve-samples.ts'
import { slowSamples } from './slow-samples.ts'

serveSamples(slowSamples)
