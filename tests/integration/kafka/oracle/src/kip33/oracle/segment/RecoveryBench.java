package kip33.oracle.segment;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Recovers the same segments again and again in a warm machine.
 *
 * <p>Answers nanoseconds per pass and file: {@code recover_ns} is recovery alone, {@code total_ns}
 * also opens and closes the segment. Good segments only: recovery cuts a damaged one at the first
 * pass.
 */
public final class RecoveryBench {
    public Map<String, Object> answer(JsonNode request) throws IOException {
        List<List<Long>> recoverNs = new ArrayList<>();
        List<List<Long>> totalNs = new ArrayList<>();
        for (int pass = 0; pass < request.path("passes").asInt(5); pass++) {
            List<Long> recover = new ArrayList<>();
            List<Long> total = new ArrayList<>();
            for (JsonNode segment : request.get("segments")) {
                long opening = System.nanoTime();
                try (Partition partition = new Partition(SegmentSettings.of(segment))) {
                    long recovering = System.nanoTime();
                    partition.recover();
                    recover.add(System.nanoTime() - recovering);
                }
                total.add(System.nanoTime() - opening);
            }
            recoverNs.add(recover);
            totalNs.add(total);
        }
        return Map.of("recover_ns", recoverNs, "total_ns", totalNs);
    }
}
